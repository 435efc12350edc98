"""A layer for multi-token prediction proposes (Gloeckle et al. 2024; DeepSeek V3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.sequence import Wanted
from oxibonsai.engine.speculation.following import Draft, PendingRows, StatesDrafter, own_pages
from oxibonsai.engine.speculation.proposals import Limits
from oxibonsai.models.drafting import DraftingLayer
from oxibonsai.models.model import FINAL

Rows = npt.NDArray[np.float32]


class MtpDraft(StatesDrafter):
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

    def propose(self, wanted: list[Wanted]) -> list[list[int]]:
        """See :class:`StatesDrafter`; each further token goes on from the layer's own hidden states."""
        drafts = [_Draft(self, one) for one in wanted]
        with self.lock:
            while growing := [d for d in drafts if d.guess.wants_more()]:
                ready = [d for d in growing if d.reserve(d.rows)]
                results = self.read([d.rows for d in ready], outputs=True)
                for draft, (logits, state) in zip(ready, results, strict=True):
                    draft.extend(logits, state)
            for draft in drafts:
                draft.close()
        return [d.guess.tokens for d in drafts]


class _Draft(Draft):
    """A proposal in the making.

    Attributes:
        rows: What the layer reads next.
    """

    def __init__(self, drafter: MtpDraft, wanted: Wanted) -> None:
        super().__init__(drafter, wanted)
        self.rows = PendingRows(self.speculator.table, [], 0, np.empty((0, 0), np.float32))
        if self.guess.wants_more():
            self.rows = self.pending()
            if not self.rows.tokens:  # all was read before: nothing gives logits
                self.guess.end()
        self._end = self.speculator.num_read  # of what is text, and of the proposal

    def extend(self, logits: Rows, state: Rows) -> None:
        """Add the token that the layer gives, from whose own hidden states it goes on."""
        token = self.guess.extend(logits)
        if token is not None:
            self.rows = PendingRows(self.speculator.table, [token], self._end, state)
            self._end += 1
