"""How many tokens to propose: more while proposals are accepted, fewer while they are not."""

from __future__ import annotations

from oxibonsai.errors import RequestError

_START, _LEAST, _MOST = 5, 2, 12
_ALPHA = 0.2  # weight of the newest count of accepted tokens
_PAUSE = 4  # steps between changes


class Lookahead:
    """Length of the next proposal.

    Args:
        fixed: Always this many, 1 to 64; None: adapted between 2 and 12 to one more than the smoothed
            count of accepted tokens.
    """

    def __init__(self, fixed: int | None = None) -> None:
        if fixed is not None and not 1 <= fixed <= 64:
            raise RequestError(f"the draft length is {fixed}; it must be from 1 to 64")
        self._fixed = fixed
        self._length = _START
        self._accepted = float(_START - 1)
        self._steps = 0
        self.proposed = 0
        self.accepted = 0

    @property
    def length(self) -> int:
        """Tokens to propose next."""
        return self._length if self._fixed is None else self._fixed

    def observe(self, proposed: int, accepted: int) -> None:
        """Learns that ``accepted`` of ``proposed`` tokens were right."""
        self.proposed += proposed
        self.accepted += accepted
        self._accepted += _ALPHA * (accepted - self._accepted)
        self._steps += 1
        if self._steps % _PAUSE == 0:
            self._length = min(max(round(self._accepted + 1), _LEAST), _MOST)
