"""Slots of recurrent state: one for every sequence, and others for its drafts."""

from __future__ import annotations

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
        sequences: Sequences that run at once.
        snapshots: Snapshots that are kept in host memory at most; see :class:`StateStore`.
        interval: Tokens from one snapshot to the next, where no end of a turn asks for one.
        spare: Further slots for each sequence: for states within a draft, to go back to, and for beams.
    """

    sequences: int
    snapshots: int = 0
    interval: int = 64
    spare: int = 1

    @property
    def slots(self) -> int:
        """Return slots in all; memory is taken as they are first used.

        Where state is kept, beams may branch before the old ones are given up.
        """
        return (1 + self.spare) * self.sequences + min(self.snapshots, 2 * self.sequences)


class SlotCache:
    """Hands out the slots of a model's recurrent state.

    Args:
        memory: The slots.
        plan: What they are for.
    """

    def __init__(self, memory: Slots, plan: SlotPlan) -> None:
        self.memory = memory
        self.plan = plan
        self._free = list(range(memory.slots - 1, -1, -1))

    @property
    def used(self) -> int:
        """Return the slots that sequences hold."""
        return self.memory.slots - len(self._free)

    @property
    def used_bytes(self) -> int:
        """Return the bytes of slots that sequences hold."""
        return self.used * self.memory.slot_bytes

    @property
    def has_room(self) -> bool:
        """Whether one more sequence may run."""
        return self.used < self.plan.sequences

    @property
    def has_spare(self) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    def take(self) -> int:
        """Return a slot of its own for a sequence; what it holds is of no meaning.

        Raises:
            CapacityError: Sequences hold all of them.
        """
        if not self._free:
            raise CapacityError(
                f"all {self.memory.slots} slots of recurrent state, {self.memory.slot_bytes} bytes "
                f"each, are in use: load the model for more than {self.plan.sequences} sequences "
                "(--parallel)"
            )
        return self._free.pop()

    def give_back(self, index: int) -> None:
        """Make a slot free."""
        self._free.append(index)

    def copy(self, source: int, target: int) -> None:
        """Bring a slot to the state of another one."""
        if source != target:
            self.memory.copy(source, target)
