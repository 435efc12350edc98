"""Prompt lookup: what followed the last tokens when they came before (Saxena 2023)."""

from __future__ import annotations

from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.errors import RequestError


class NgramSpeculator:
    """Proposes the continuation of the latest earlier occurrence of the last n tokens.

    Args:
        longest: Tokens that must match, tried first.
        shortest: Tokens that must match at least.
        length: Tokens of a proposal; None: as many as make decoding fastest.
        least: Shorter proposals are dropped.
    """

    def __init__(
        self, longest: int = 4, shortest: int = 2, length: int | None = None, least: int = 0
    ) -> None:
        if not 1 <= shortest <= longest <= 32:
            raise RequestError(
                f"n-grams of {shortest} to {longest} tokens: both must be from 1 to 32, in this order"
            )
        self._sizes = range(longest, shortest - 1, -1)
        self.lookahead = Lookahead(length, least)
        self.shared = self.reader = None
        # For every n-gram but the last of the text, the position after its latest occurrence.
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """Propose at most ``most`` tokens; none where the last tokens have not come before."""
        tokens = sequence.history
        for end in range(self._indexed + 1, len(tokens)):
            for n in self._sizes:
                if n <= end:
                    self._after[tuple(tokens[end - n : end])] = end
        self._indexed = max(len(tokens) - 1, 0)
        for n in self._sizes:
            start = self._after.get(tuple(tokens[-n:])) if n <= len(tokens) else None
            if start is not None:
                return tokens[start : start + min(most, self.lookahead.length)]
        return []

    def close(self) -> None:
        """Forget the text."""
        self._after.clear()
