"""The protocol of speculators, which propose tokens to the engine."""

from __future__ import annotations

from typing import Protocol

from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import Lookahead


class MakeSpeculator(Protocol):
    """Makes speculators, one for each new sequence."""

    def __call__(self, *, length: int | None = None, threshold: float | None = None) -> Speculator:
        """Return a new speculator.

        Args:
            length: Tokens of a proposal; None: as usual.
            threshold: A proposal ends where its maker is less sure than this; None: as usual.

        Raises:
            RequestError: One of them is out of range, or there are no probabilities to compare.
        """
        ...


class Speculator(Protocol):
    """Proposes the next tokens of one sequence.

    Attributes:
        lookahead: How many to propose, and how many were right so far.
    """

    lookahead: Lookahead

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """At most ``most`` tokens that may come next; none where there is no good guess."""
        ...

    def close(self) -> None:
        """Return back what it holds: the sequence has ended."""
        ...
