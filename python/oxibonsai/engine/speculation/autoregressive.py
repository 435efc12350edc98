"""Proposals token after token: each goes on from what the drafter gave for the one before."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np

from oxibonsai import _core
from oxibonsai.engine.sequence import Wanted
from oxibonsai.engine.speculation.following import Draft, PendingRows, Rows, StatesDrafter


class AutoregressiveDrafter(StatesDrafter):
    """A drafter that reads ahead, and gives logits and a state for the next token of a proposal."""

    def run_proposed(self, batch: _core.Batch, states: Rows) -> Items[tuple[Rows, Rows]]:
        """Take rows of proposals into the cache.

        Args:
            batch: Their tokens.
            states: float32 [rows, columns], as the drafter gave them for the tokens before.

        Returns:
            What :meth:`run` returns, which reads them where a drafter's own states are like the model's.
        """
        return self.run(batch, states)

    def propose(self, wanted: list[Wanted]) -> list[list[int]]:
        """See :class:`StatesDrafter`; all proposals grow by a token a pass."""
        drafts = [_Draft(self, one) for one in wanted]
        run = self.run  # the first rows are of texts
        with self.lock:
            while growing := [d for d in drafts if d.guess.wants_more()]:
                ready = [d for d in growing if d.reserve(d.rows)]
                results = self.read([d.rows for d in ready], outputs=True, run=run)
                for draft, (logits, state) in zip(ready, results, strict=True):
                    draft.extend(logits, state)
                run = self.run_proposed
            for draft in drafts:
                draft.close()
        return [d.guess.tokens for d in drafts]


class _Draft(Draft):
    """A proposal in the making.

    Attributes:
        rows: What the drafter reads next.
    """

    def __init__(self, drafter: AutoregressiveDrafter, wanted: Wanted) -> None:
        super().__init__(drafter, wanted)
        self.rows = PendingRows(self.speculator.table, [], 0, np.empty((0, 0), np.float32))
        if self.guess.wants_more():
            self.rows = self.pending()
            if not self.rows.tokens:  # all was read before: nothing gives logits
                self.guess.end()
        self._end = self.speculator.num_read  # of what is text, and of the proposal

    def extend(self, logits: Rows, state: Rows) -> None:
        """Add the token that the logits give, and go on from the state."""
        token = self.guess.extend(logits)
        if token is not None:
            self.rows = PendingRows(self.speculator.table, [token], self._end, state)
            self._end += 1
