"""The state of one text under a structure: what may come next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = npt.NDArray[np.uint32]


class Constraint:
    """Follows one text, token by token. One thread at a time; :meth:`fork` for another text.

    Args:
        matcher: llguidance's own state, not shared with anyone.
        vocab_size: Rows of the model's logits.
        end_ids: Tokens that end a text.
        give_up: Called with the reason where the structure can't be followed any further.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        end_ids: frozenset[int],
        give_up: Callable[[str], None],
    ) -> None:
        self._matcher = matcher
        self._words = -(-vocab_size // 32)
        self._end_ids = end_ids
        self._give_up = give_up
        self._mask: Mask | None = None

    def mask(self) -> Mask:
        """Return the tokens that may come next: uint32 [ceil(vocab / 32)], bit i % 32 of word i // 32.

        Where the text may end, every end-of-text token is among them; where it has ended, nothing
        else is. The array is read-only and stays as it is when the state moves on.

        Raises:
            RequestError: The structure has become too complex to follow, or it has no way on.
        """
        if self._mask is None:
            mask = np.zeros(self._words, dtype=np.uint32)
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            if self._matcher.is_error():
                raise self._end()
            mask.flags.writeable = False
            self._mask = mask
        return self._mask

    def accept(self, token: int) -> None:
        """Move on by a token.

        Raises:
            RequestError: The token may not come here, and the state stays as it was; or as of
                :meth:`mask`.
        """
        if not self.allows(token):
            raise RequestError(f"token {token} may not come next in the structure")
        if not self._matcher.consume_token(token):
            raise self._end()
        self._mask = None

    def banned(self) -> frozenset[int]:
        """Return nothing: the mask says it all."""
        return frozenset()

    def forced(self) -> list[int]:
        """Return nothing: the model chooses even where a single token may come."""
        return []

    def allows(self, token: int) -> bool:
        """Return whether a token may come next."""
        if not 0 <= token < self._words * 32:
            return False
        return bool(self.mask()[token // 32] >> np.uint32(token % 32) & np.uint32(1))

    @property
    def decides_end(self) -> bool:
        """True: the structure says where the text ends."""
        return True

    @property
    def may_end(self) -> bool:
        """Whether the text so far is one that the structure accepts."""
        return bool(self._matcher.is_accepting())

    @property
    def finished(self) -> bool:
        """Whether the text is complete, so that nothing but an end may follow."""
        if not self.may_end:
            return False
        others = self.mask().copy()
        for i in self._end_ids:
            others[i // 32] &= ~np.uint32(1 << i % 32)
        return not others.any()

    def rollback(self, count: int) -> None:
        """Take back the last tokens.

        Args:
            count: 0 to the number of accepted tokens.
        """
        if count < 0 or not self._matcher.rollback(count):
            raise RequestError(f"can't take back {count} tokens: {self._reason()}")
        self._mask = None

    def fork(self) -> Constraint:
        """Return a second text that goes on from here on its own."""
        copy = Constraint.__new__(Constraint)
        copy.__dict__.update(self.__dict__)
        copy._matcher = self._matcher.deep_copy()
        return copy

    def _end(self) -> RequestError:
        reason = f"the structure can't be followed to its end: {self._reason()}"
        self._give_up(reason)
        return RequestError(reason)

    def _reason(self) -> str:
        lines = self._matcher.get_error().splitlines()
        return lines[0] if lines else "no reason given"
