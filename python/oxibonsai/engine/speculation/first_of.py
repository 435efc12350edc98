"""Several speculators for one sequence: the first one with a guess proposes."""

from __future__ import annotations

from collections.abc import Sequence as Items

from oxibonsai.engine.sequence import Sequence, Speculator, StatesReader


class FirstOf:
    """Asks its parts in turn.

    Args:
        parts: At least one, of which one at most reads hidden states.

    Attributes:
        parts: As given; they have one lookahead.
        lookahead: That of all.
    """

    def __init__(self, parts: Items[Speculator]) -> None:
        self.parts = list(parts)
        self.shared = None
        self.lookahead = parts[0].lookahead
        for part in self.parts:
            part.lookahead = self.lookahead

    @property
    def reader(self) -> StatesReader | None:
        """Return what reads hidden states."""
        return next((r for part in self.parts if (r := part.reader) is not None), None)

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """Propose at most ``most`` tokens, of the first part that has any."""
        drafts = (part.propose(sequence, most) for part in self.parts)
        return next((draft for draft in drafts if draft), [])

    def close(self) -> None:
        """Release what the parts hold."""
        for part in self.parts:
            part.close()
