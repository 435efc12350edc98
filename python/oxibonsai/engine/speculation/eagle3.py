"""A drafter of EAGLE-3 proposes token after token from hidden states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures import eagle3
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.speculation.autoregressive import AutoregressiveDrafter
from oxibonsai.engine.speculation.following import own_pages
from oxibonsai.engine.speculation.proposals import Limits
from oxibonsai.models.eagle_drafter import EagleDrafter

Rows = npt.NDArray[np.float32]


class EagleDraft(AutoregressiveDrafter):
    """Makes speculators from a drafter of architecture ``eagle3``.

    Args:
        engine: Whose texts are proposed.
        file: The drafter.
        threshold: Proposing ends before a token to which the drafter gives less probability.
        length: Tokens of a proposal; None: as many as make decoding fastest.
        least: Shorter proposals are dropped.

    Raises:
        FormatError: The drafter is damaged, or made for another model.
        UnsupportedError: It is of a kind that is not known.
    """

    def __init__(
        self,
        engine: Engine,
        file: Checkpoint,
        *,
        threshold: float = 0.5,
        length: int | None = None,
        least: int = 0,
    ) -> None:
        limits = Limits(length, least, threshold)
        self._drafter = EagleDrafter(engine.model, file)
        pages = own_pages(engine, self._drafter.new_pages)
        taps = self._drafter.config.target_layers
        name = f"{eagle3.NAME} {file.fingerprint()}"
        super().__init__(engine, name, pages, taps, ahead=True, longest=None, limits=limits)

    def run(self, batch: _core.Batch, states: Rows) -> list[tuple[Rows, Rows]]:
        """Return logits [vocabulary] and the drafter's state [1, hidden] of each output row."""
        logits, hidden = self._drafter.read_text(batch, list(self.cache.pools), states)
        return list(zip(logits, hidden[:, None], strict=True))

    def run_proposed(self, batch: _core.Batch, states: Rows) -> list[tuple[Rows, Rows]]:
        """Implement :meth:`AutoregressiveDrafter.run_proposed`."""
        logits, hidden = self._drafter.read_draft(batch, list(self.cache.pools), states)
        return list(zip(logits, hidden[:, None], strict=True))
