"""The state of one sequence in the cache: its pages, the keys by which they are known, its slot."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from oxibonsai import _core
from oxibonsai.engine.slot_cache import Slot
from oxibonsai.engine.state_store import StateKey

PAGE_POSITIONS = _core.PAGE_POSITIONS


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
        states: Further slots with recurrent states of the sequence: within a draft, or from before it.
        snapshots: Positions with a snapshot of the state there, in order, and its key.
    """

    pool: int = 0
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    slot: Slot | None = None
    states: list[Slot] = field(default_factory=list)
    snapshots: list[tuple[int, StateKey]] = field(default_factory=list)

    @property
    def covered(self) -> int:
        """Return the positions that what was found in the cache covers: see :meth:`KvCache.find`."""
        return len(self.keys) * PAGE_POSITIONS if self.slot is None else self.slot.position

    def reach(self, positions: int) -> int:
        """Return how many of the first ``positions`` positions the state covers."""
        return positions if self.slot is None else min(positions, self.slot.position)


@dataclass(frozen=True)
class Prefix:
    """The known beginning of a text.

    Attributes:
        pool: Of its pages.
        keys: Hashes of its full pages.
        snapshot: Of the state at its end, and of the page that is partly written there; None where
            the model has no recurrent state, or nothing is known.
        positions: Where it ends.
    """

    pool: int
    keys: list[bytes] = field(default_factory=list)
    snapshot: StateKey | None = None
    positions: int = 0


def page_key(parent: bytes, tokens: Items[int], index: int) -> bytes:
    """Return the hash of page ``index`` of a text, given that of the page before it."""
    run = array("q", tokens[index * PAGE_POSITIONS : (index + 1) * PAGE_POSITIONS])
    return hashlib.blake2b(parent + run.tobytes(), digest_size=16).digest()
