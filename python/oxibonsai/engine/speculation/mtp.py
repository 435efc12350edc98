"""A layer for multi-token prediction proposes (Gloeckle et al. 2024; DeepSeek V3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.speculation.autoregressive import AutoregressiveDrafter
from oxibonsai.engine.speculation.following import own_pages
from oxibonsai.engine.speculation.proposals import Limits
from oxibonsai.models.drafting import DraftingLayer
from oxibonsai.models.passes import FINAL

Rows = npt.NDArray[np.float32]


class MtpDraft(AutoregressiveDrafter):
    """Makes speculators from a layer that predicts a further token.

    The layer reads the hidden states that the model's steps give for the tokens of a text.

    Args:
        engine: Whose texts are proposed.
        file: Where the layer is; None: in the model's own file.
        threshold: Proposing ends before a token to which the layer gives less probability.
        length: Tokens of a proposal; None: as many as make decoding fastest.
        least: Shorter proposals are dropped.

    Raises:
        FormatError: The file's layer has other dimensions than the model.
        UnsupportedError: There is no such layer.
    """

    def __init__(
        self,
        engine: Engine,
        file: Checkpoint | None = None,
        *,
        threshold: float = 0.5,
        length: int | None = None,
        least: int = 0,
    ) -> None:
        limits = Limits(length, least, threshold)
        self.layer = DraftingLayer(engine.model, file)
        pages = own_pages(engine, self.layer.new_pages)
        name = "mtp" if file is None else f"mtp {file.fingerprint()}"
        super().__init__(engine, name, pages, (FINAL,), ahead=True, longest=None, limits=limits)

    def run(self, batch: _core.Batch, states: Rows) -> list[tuple[Rows, Rows]]:
        """Return logits [vocabulary] and hidden states [1, hidden] of each output row."""
        logits, hidden = self.layer.run(batch, list(self.cache.pools), states)
        return list(zip(logits, hidden[:, None], strict=True))
