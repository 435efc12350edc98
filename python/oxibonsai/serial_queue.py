"""Queues of callers that wait for one thing, and the rule by which tenants share it."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from oxibonsai.errors import CapacityError


def exceeds_share(held: Mapping[str, int], tenant: str, most: int) -> bool:
    """Return whether a tenant must be refused: all is taken, and not too little of it is its own.

    Each of ``n`` tenants may hold an ``n``-th, and at least one, even where others have taken all.
    What others hold already is not taken away from them, so that fewer than twice as many are held,
    or one by each tenant.

    Args:
        held: What each tenant holds, the one that is asked for included.
        tenant: Whose request it is.
        most: How many there are; with 0, nothing is ever given.
    """
    if sum(held.values()) <= most:
        return False
    tenants = sum(count > 0 for count in held.values())
    return held[tenant] > max(most // tenants, min(1, most))


class Shares:
    """Counts what tenants hold of something; safe to use from several threads.

    Args:
        most: How many there are; see :func:`exceeds_share`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, tenant: str) -> bool:
        """Take one for a tenant; return whether it may have it."""
        with self._lock:
            held = self._held + Counter([tenant])
            if exceeds_share(held, tenant, self._most):
                return False
            self._held = held
            return True

    def give_back(self, tenant: str) -> None:
        """Give back what :meth:`take` took."""
        with self._lock:
            self._held -= Counter([tenant])


LOOK_SECONDS = 0.2

_Ticket = tuple[str, object]  # the tenant, and what no other ticket is


class SerialQueue:
    """Admits one at a time: tenants take turns, each with its work in the order of arrival.

    Args:
        name: What waits, for errors.
        most_waiting: How many may wait; more are refused, unless a tenant has less than its share
            of them waiting.
        tenant: Returns whose work the calling thread does; None: all work is one tenant's.
    """

    def __init__(
        self, name: str, most_waiting: int, tenant: Callable[[], str | None] | None = None
    ) -> None:
        self.name = name
        self.most_waiting = most_waiting
        self._tenant = tenant
        self._working: _Ticket | None = None
        # In the order of the tenants' turns: who has had one goes behind the others.
        self._waiting: OrderedDict[str, deque[_Ticket]] = OrderedDict()
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def enter(self, look: Callable[[], None] | None = None) -> Callable[[], None]:
        """Wait for the turn.

        Args:
            look: Called some times in a second meanwhile; what it raises ends the waiting.

        Returns:
            What ends the turn; idempotent.

        Raises:
            CapacityError: Too many wait.
        """
        tenant = (None if self._tenant is None else self._tenant()) or ""
        ticket = (tenant, object())
        with self._changed:
            if self._working is None:
                self._working = ticket
            else:
                self._queue_up(ticket)
        self._wait(ticket, look)
        return lambda: self._leave(ticket)

    @contextmanager
    def turn(self, look: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the turn for the time of a block; see :meth:`enter`."""
        leave = self.enter(look)
        try:
            yield
        finally:
            leave()

    def give_way(self, look: Callable[[], None] | None = None) -> None:
        """Let the other tenants that wait have a turn each, within long work; then go on.

        Only for whoever has the turn. What the work holds meanwhile is not bounded by the queue, apart
        from there being one such piece of work of each tenant.

        Args:
            look: As of :meth:`enter`; where it raises, the turn is over.
        """
        with self._changed:
            ticket = self._working
            assert ticket is not None
            tenant, _ = ticket
            if not self._waiting.keys() - {tenant}:
                return
            self._waiting.setdefault(tenant, deque()).appendleft(ticket)
            self._hand_over(tenant)
        self._wait(ticket, look)

    def _wait(self, ticket: _Ticket, look: Callable[[], None] | None) -> None:
        try:
            while not self._has_turn(ticket):
                if look is not None:
                    look()
        except BaseException:
            self._leave(ticket)
            raise

    def _queue_up(self, ticket: _Ticket) -> None:
        tenant, _ = ticket
        held = Counter({other: len(tickets) for other, tickets in self._waiting.items()})
        if exceeds_share(held + Counter([tenant]), tenant, self.most_waiting):
            raise CapacityError(f"{held.total()} {self.name} wait: try again later")
        self._waiting.setdefault(tenant, deque()).append(ticket)

    def _has_turn(self, ticket: _Ticket) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._working is ticket, LOOK_SECONDS)

    def _leave(self, ticket: _Ticket) -> None:
        tenant, _ = ticket
        with self._changed:
            if self._working is ticket:
                self._hand_over(tenant)
            elif ticket in self._waiting.get(tenant, ()):
                self._remove(ticket)

    def _hand_over(self, tenant: str) -> None:
        """End the turn of a tenant: it goes behind the others, and the first of them has the next."""
        if tenant in self._waiting:
            self._waiting.move_to_end(tenant)
        self._working = next((tickets[0] for tickets in self._waiting.values()), None)
        if self._working is not None:
            self._remove(self._working)
        self._changed.notify_all()

    def _remove(self, ticket: _Ticket) -> None:
        tenant, _ = ticket
        self._waiting[tenant].remove(ticket)
        if not self._waiting[tenant]:
            del self._waiting[tenant]
