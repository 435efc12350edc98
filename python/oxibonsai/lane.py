"""Work of which only one piece is done at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oxibonsai.errors import CapacityError

LOOK_SECONDS = 0.2


class Lane:
    """One at a time; others wait in the order in which they came.

    Args:
        name: What waits, for errors.
        most_waiting: How many may wait; more are refused.
    """

    def __init__(self, name: str, most_waiting: int) -> None:
        self.most_waiting = most_waiting
        self._name = name
        self._queue: deque[object] = deque()  # the first one is at work
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return max(0, len(self._queue) - 1)

    def enter(self, look: Callable[[], None] | None = None) -> Callable[[], None]:
        """Waits for the turn.

        Args:
            look: Called some times in a second meanwhile; what it raises ends the waiting.

        Returns:
            What ends the turn; it does no harm the second time.

        Raises:
            CapacityError: Too many wait.
        """
        ticket = object()
        with self._changed:
            if self.waiting >= self.most_waiting and self._queue:
                raise CapacityError(f"{self.waiting} {self._name} wait: try again later")
            self._queue.append(ticket)
        try:
            while not self._is_first(ticket):
                if look is not None:
                    look()
        except BaseException:
            self._leave(ticket)
            raise
        return lambda: self._leave(ticket)

    @contextmanager
    def turn(self, look: Callable[[], None] | None = None) -> Iterator[None]:
        """As :meth:`enter`, for the time of a block."""
        leave = self.enter(look)
        try:
            yield
        finally:
            leave()

    def _is_first(self, ticket: object) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._queue[0] is ticket, LOOK_SECONDS)

    def _leave(self, ticket: object) -> None:
        with self._changed:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._changed.notify_all()
