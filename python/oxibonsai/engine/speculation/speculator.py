"""What the engine asks of anything that proposes tokens."""

from __future__ import annotations

from typing import Protocol

from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import Lookahead


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
        """Gives back what it holds: the sequence has ended."""
        ...
