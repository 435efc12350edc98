"""Which request runs on which slot, numbered as in llama-server: one slot for each permit of the pool.

Slots share one prefix cache, so the slot changes neither a request's output nor its cache hits.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

from oxibonsai.engine import Engine, EnginePool, Sequence
from oxibonsai.server.errors import ApiError, not_found


@dataclass(frozen=True)
class SlotRequest:
    """Who asks for a slot, and for which.

    Attributes:
        owner: Owner of the request; None for background work.
        slot: The preferred slot; None or -1: any.
    """

    owner: str | None = None
    slot: int | None = None


@dataclass
class Slot:
    """One slot of an engine.

    Attributes:
        id: Its number over all engines.
        engine: The engine it belongs to.
        holder: The request that runs on it; None while it is idle.
        owner: Owner of the latest request.
        sequence: The latest request's sequence; the first of several samples.
        task: Number of the latest request.
        released: Rank of its last release; the idle slot with the smallest one is assigned first.
    """

    id: int
    engine: Engine
    holder: SlotRequest | None = None
    owner: str | None = None
    sequence: Sequence | None = None
    task: int = -1
    released: int = -1

    @property
    def busy(self) -> bool:
        """Whether a request runs on it."""
        return self.holder is not None

    @property
    def paused(self) -> bool:
        """Whether its request was paused and its permit passed on."""
        return self.sequence is not None and self.sequence.paused


class SlotTable:
    """Assigns slots to requests that hold a permit, and records the latest request of each slot."""

    def __init__(self, pool: EnginePool) -> None:
        self._slots = [Slot(i, pool.engines[i // pool.parallel]) for i in range(pool.permits)]
        self._lock = threading.Lock()
        self._tasks, self._ends = itertools.count(), itertools.count()

    @property
    def slots(self) -> list[Slot]:
        """All slots, by number."""
        return self._slots

    def assign(
        self, slot: Slot | None, engine: Engine, sequence: Sequence, slot_request: SlotRequest
    ) -> Slot | None:
        """Return the slot of a request that holds a permit: its current one, or a free one.

        Args:
            slot: Its slot so far; another request may hold it now if this one was paused.
            engine: The engine it runs on.
            sequence: Its sequence; the first of several samples.
            slot_request: Its preferred slot is used if possible.
        """
        if sequence.paused or (slot is not None and slot.holder is slot_request):
            return slot
        with self._lock:
            own = [s for s in self._slots if s.engine is engine]
            free = [s for s in own if not s.busy] or [s for s in own if s.paused]
            if not free:  # it was paused just now
                return slot
            slot = min(free, key=lambda s: (s.id != slot_request.slot, s.released))
            slot.holder, slot.owner, slot.sequence = slot_request, slot_request.owner, sequence
            slot.task = next(self._tasks)
            return slot

    def release(self, slot: Slot, slot_request: SlotRequest) -> None:
        """Free the slot if this request still holds it."""
        with self._lock:
            if slot.holder is slot_request:
                slot.holder = None
                slot.released = next(self._ends)

    def idle(self, number: str) -> Slot:
        """Return an idle slot, by its number in decimal digits.

        Raises:
            ApiError: 404 if there is no such slot, 409 if it is busy.
        """
        slot = next((s for s in self._slots if str(s.id) == number), None)
        if slot is None:
            raise not_found("slot", number)
        if slot.busy:
            raise ApiError(409, f"Slot {number} is busy: try again later.", retry_after=1)
        return slot

    def record_restored(self, slot: Slot, sequence: Sequence, owner: str) -> None:
        """Record a sequence that was restored to an idle slot."""
        with self._lock:
            if not slot.busy:
                slot.sequence, slot.owner, slot.task = sequence, owner, next(self._tasks)
                slot.released = next(self._ends)
