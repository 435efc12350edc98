"""Which request runs on which slot, as llama-server numbers them: a slot for each permit of the pool.

Slots share one cache, so where a request runs changes neither its answer nor what it finds there.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

from oxibonsai.engine import Engine, EnginePool, Sequence
from oxibonsai.server.errors import ApiError, not_found


@dataclass(frozen=True)
class Wish:
    """Of a request.

    Attributes:
        owner: Whose it is; None for work that goes on without a request.
        slot: The slot that it wants; None or -1: any.
    """

    owner: str | None = None
    slot: int | None = None


@dataclass
class Slot:
    """One place on an engine.

    Attributes:
        id: Its number over all engines.
        engine: Where it is.
        wish: Of the request that runs on it; None while it is idle.
        owner: Of the latest request.
        sequence: The latest request's, of several samples the first.
        task: Number of the latest request.
        left: Grows with every request that ends; of idle slots the smallest is taken first.
    """

    id: int
    engine: Engine
    wish: Wish | None = None
    owner: str | None = None
    sequence: Sequence | None = None
    task: int = -1
    left: int = -1

    @property
    def busy(self) -> bool:
        """Whether a request runs on it."""
        return self.wish is not None

    @property
    def paused(self) -> bool:
        """Whether the request on it has given its permit away."""
        return self.sequence is not None and self.sequence.paused


class SlotBoard:
    """Gives requests that hold a permit a slot, and remembers who was where."""

    def __init__(self, pool: EnginePool) -> None:
        self._slots = [Slot(i, pool.engines[i // pool.parallel]) for i in range(pool.permits)]
        self._lock = threading.Lock()
        self._tasks, self._ends = itertools.count(), itertools.count()

    @property
    def slots(self) -> list[Slot]:
        """All of them, by number."""
        return self._slots

    def keep(
        self, slot: Slot | None, engine: Engine, sequence: Sequence, wish: Wish
    ) -> Slot | None:
        """The slot of a request that has a permit: what it has, or a free one.

        Args:
            slot: What it has had; another request may have it now, for which this one was paused.
            engine: Where it runs.
            sequence: Of several samples the first.
            wish: The slot that is wished for is taken where it can be.
        """
        if sequence.paused or (slot is not None and slot.wish is wish):
            return slot
        with self._lock:
            own = [s for s in self._slots if s.engine is engine]
            free = [s for s in own if not s.busy] or [s for s in own if s.paused]
            if not free:  # it has been paused this moment
                return slot
            slot = min(free, key=lambda s: (s.id != wish.slot, s.left))
            slot.wish, slot.owner, slot.sequence = wish, wish.owner, sequence
            slot.task = next(self._tasks)
            return slot

    def leave(self, slot: Slot, wish: Wish) -> None:
        """Frees a slot that this request still has."""
        with self._lock:
            if slot.wish is wish:
                slot.wish = None
                slot.left = next(self._ends)

    def idle(self, number: str) -> Slot:
        """A slot, by its number in digits, that nothing runs on.

        Raises:
            ApiError: 404 where there is no such slot, 409 where it is busy.
        """
        slot = next((s for s in self._slots if str(s.id) == number), None)
        if slot is None:
            raise not_found("slot", number)
        if slot.busy:
            raise ApiError(409, f"Slot {number} is at work: try again later.", retry_after=1)
        return slot

    def fill(self, slot: Slot, sequence: Sequence, owner: str) -> None:
        """Notes what was restored to an idle slot."""
        with self._lock:
            if not slot.busy:
                slot.sequence, slot.owner, slot.task = sequence, owner, next(self._tasks)
                slot.left = next(self._ends)
