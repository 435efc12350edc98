"""Passes of a model with an encoder and a decoder, without an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from dense_models import VOCABULARY

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device
from oxibonsai.models import load_model

START = 3
# Longer than a page and than the largest distance with a bucket of its own.
DECODED: list[int] = [START, *np.random.default_rng(13).integers(0, VOCABULARY, 79).tolist()]


class Runs:
    """A model with pages for three sequences."""

    def __init__(self, path: Path, device: Device) -> None:
        self.model = load_model(Checkpoint(path), device)
        self.pools = [self.model.new_pages("f32", 12)]

    def add(
        self, batch: _core.Batch, sequence: int, ids: list[int], first: int, encoded: int
    ) -> None:
        pages = list(range(4 * sequence, 4 * sequence + 4))
        outputs = len(ids) if first >= encoded else 0
        batch.add(ids, first=first, pages=pages, outputs=outputs, encoded=encoded)

    def encode(self, *texts: list[int]) -> None:
        batch = _core.Batch()
        for i, ids in enumerate(texts):
            self.add(batch, i, ids, 0, len(ids))
        self.model.encode(batch, self.pools)

    def decode(self, *spans: tuple[int, int, int, int]) -> npt.NDArray[np.float32]:
        """(sequence, encoded, first, last) of each span, whose rows are those of ``DECODED``."""
        batch = _core.Batch()
        for sequence, encoded, first, last in spans:
            self.add(batch, sequence, DECODED[first:last], encoded + first, encoded)
        return self.model.run(batch, self.pools)
