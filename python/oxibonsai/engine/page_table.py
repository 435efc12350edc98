"""Pages and slot that one sequence holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from oxibonsai.engine.slot_cache import Slot


@dataclass
class PageTable:
    """The state of one sequence: page i holds positions 64 i to 64 i + 63.

    Attributes:
        pool: Which of the cache's pools the pages belong to.
        pages: Their numbers; none where the model has only recurrent state.
        keys: Hashes of the leading runs of 64 tokens that are computed, by which pages and snapshots
            are known.
        slot: With the recurrent state after the tokens computed last; None where the model has no
            such state, or the sequence none yet.
        backup: A copy of the slot from before a draft.
        newest: The key of the snapshot that the next one of the generated text replaces.
    """

    pool: int = 0
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    slot: Slot | None = None
    backup: Slot | None = None
    newest: bytes | None = None

    def reach(self, positions: int) -> int:
        """How many of the first ``positions`` positions the state covers."""
        return positions if self.slot is None else min(positions, self.slot.position)
