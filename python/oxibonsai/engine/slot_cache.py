"""Slots of recurrent state: one for every sequence, others with snapshots of earlier states."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from oxibonsai.devices import Slots
from oxibonsai.errors import CapacityError


@dataclass
class Slot:
    """A slot that is in use.

    Attributes:
        index: Which one.
        position: How many tokens of a sequence its state has read.
    """

    index: int
    position: int = 0


@dataclass(frozen=True)
class SlotPlan:
    """How many slots there are, and when a snapshot is taken.

    Attributes:
        sequences: Sequences that run at once. Each may have a second slot, to go back to when a draft
            is rejected.
        snapshots: States that are kept at most.
        interval: A prompt leaves a snapshot after so many positions, a multiple of a page's, and at
            the border of its last page.
    """

    sequences: int
    snapshots: int = 0
    interval: int = 64

    @property
    def slots(self) -> int:
        """Slots in all; memory is taken as they are first used."""
        return 2 * self.sequences + self.snapshots


class SlotCache:
    """Hands out the slots of a model's recurrent state.

    A snapshot is a copy of a sequence's slot at the border of a page, known by the tokens up to there.
    The least recently used goes first: when there are too many, or when a sequence needs the slot.

    Args:
        memory: The slots.
        plan: What they are for.
    """

    def __init__(self, memory: Slots, plan: SlotPlan) -> None:
        self.memory = memory
        self.plan = plan
        self._free = list(range(memory.slots - 1, -1, -1))
        self._snapshots: OrderedDict[tuple[int, bytes], int] = OrderedDict()  # oldest first

    @property
    def used(self) -> int:
        """Slots that sequences hold."""
        return self.memory.slots - len(self._free) - len(self._snapshots)

    @property
    def num_snapshots(self) -> int:
        """Snapshots that are kept."""
        return len(self._snapshots)

    @property
    def used_bytes(self) -> int:
        """Bytes of slots that sequences hold."""
        return self.used * self.memory.slot_bytes

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of snapshots that are kept."""
        return self.num_snapshots * self.memory.slot_bytes

    @property
    def has_room(self) -> bool:
        """Whether one more sequence may run."""
        return self.used < self.plan.sequences

    def take(self) -> int:
        """Return a slot of its own for a sequence; what it holds is of no meaning.

        Raises:
            CapacityError: Sequences hold all of them.
        """
        if not self._free and not self._snapshots:
            raise CapacityError(
                f"all {self.memory.slots} slots of recurrent state, {self.memory.slot_bytes} bytes "
                f"each, are in use: load the model for more than {self.plan.sequences} sequences "
                "(--parallel)"
            )
        if not self._free:
            self._forget_oldest()
        return self._free.pop()

    def give_back(self, index: int) -> None:
        """Make a slot free."""
        self._free.append(index)

    def copy(self, source: int | None, target: int) -> None:
        """Brings a slot to the state of another one; None: to no state, which needs no bytes."""
        if source is not None and source != target:
            self.memory.copy(source, target)

    def keep(self, key: tuple[int, bytes], index: int) -> None:
        """Take a snapshot of a slot, where there is room for one.

        Args:
            key: The pool of the sequence's pages, and the hash of its tokens.
            index: The slot.
        """
        if self.find(key) is not None:
            return
        if len(self._snapshots) == self.plan.snapshots or not self._free:
            if not self._snapshots:
                return
            self._forget_oldest()
        snapshot = self._free.pop()
        self.memory.copy(index, snapshot)
        self._snapshots[key] = snapshot

    def find(self, key: tuple[int, bytes]) -> int | None:
        """Return the slot of a snapshot, which is now the most recently used; None: there is none.

        If :meth:`take` then gives away this very slot, it still holds the state.
        """
        index = self._snapshots.get(key)
        if index is not None:
            self._snapshots.move_to_end(key)
        return index

    def has(self, key: tuple[int, bytes]) -> bool:
        """Whether there is such a snapshot."""
        return key in self._snapshots

    def forget(self, key: tuple[int, bytes]) -> bool:
        """Drop a snapshot; return whether there was one."""
        index = self._snapshots.pop(key, None)
        if index is None:
            return False
        self._free.append(index)
        return True

    def clear(self) -> None:
        """Drop every snapshot."""
        while self._snapshots:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self._free.append(self._snapshots.popitem(last=False)[1])
