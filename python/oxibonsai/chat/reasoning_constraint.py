"""Constrain the tokens of a reply that begins with reasoning."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import TokenConstraint
from oxibonsai.output import ThinkingBudget


class ReasoningConstraint:
    """Ends reasoning by a budget, and leaves it out of the structure of the answer.

    Args:
        budget: Follows the reasoning.
        structure: What the text has to match; None: anything goes.
        answer_only: The structure is that of the answer, and reasoning before it is free. Otherwise
            it describes the whole text, reasoning included.
        end_ids: Tokens that end a text.
    """

    def __init__(
        self,
        budget: ThinkingBudget,
        structure: TokenConstraint | None,
        *,
        answer_only: bool,
        end_ids: frozenset[int],
    ) -> None:
        self._budget = budget
        self._structure = structure
        self._answer_only = answer_only
        self._end_ids = end_ids
        self._starting = True

    @property
    def _is_free(self) -> bool:
        """Whether the structure does not hold for the next token: it is part of reasoning."""
        # Forced tokens include white space after the close tag, which is no part of the answer.
        return self._answer_only and (self._budget.inside or bool(self._budget.forced()))

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """Return the tokens that may come next; None: all."""
        if self._structure is None or self._is_free:
            return None
        mask = self._structure.mask()
        opening = self._budget.opening if self._starting and self._answer_only else None
        if mask is not None and opening is not None:
            mask = mask.copy()  # the model may reason first
            mask[opening // 32] |= np.uint32(1 << opening % 32)
        return mask

    def banned(self) -> frozenset[int]:
        """Return the end of the text while an answer is still to come after the reasoning."""
        if self._is_free:
            return self._end_ids
        return frozenset() if self._structure is None else self._structure.banned()

    def forced(self) -> list[int]:
        """Return the end of the reasoning, once the budget is spent."""
        forced = self._budget.forced()
        if forced or self._structure is None or self._is_free:
            return forced
        return self._structure.forced()

    def accept(self, token: int) -> None:
        """Move on by a token."""
        self._starting = False
        was_free = self._is_free
        self._budget.feed(token)
        if self._structure is not None and not (was_free or self._is_free):
            self._structure.accept(token)

    @property
    def decides_end(self) -> bool:
        """Whether there is a structure that does."""
        return self._structure is not None and self._structure.decides_end

    @property
    def may_end(self) -> bool:
        """Whether the text so far may be the whole."""
        return self._structure is None or (not self._is_free and self._structure.may_end)

    @property
    def finished(self) -> bool:
        """Whether nothing but the end of the text may follow."""
        return self._structure is not None and not self._is_free and self._structure.finished

    def fork(self) -> ReasoningConstraint:
        """Return a second text that goes on from here on its own."""
        copy = ReasoningConstraint(
            self._budget.fork(),
            None if self._structure is None else self._structure.fork(),
            answer_only=self._answer_only,
            end_ids=self._end_ids,
        )
        copy._starting = self._starting
        return copy
