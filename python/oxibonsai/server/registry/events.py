"""Events of models for those who watch: loading, unloading, downloads."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from typing import Any

from oxibonsai.errors import CapacityError
from oxibonsai.fair_share import exceeds_share

Event = dict[str, Any]

# Events that a watcher has not read; it misses further ones.
_MOST_UNREAD = 1000


class ModelEvents:
    """Tells events to watchers, in llama-server's form: ``{"model", "event", "data"}``.

    Args:
        most_watchers: How many there may be, unless an owner has less than its share of them; each
            blocks a thread of the server.
    """

    def __init__(self, most_watchers: int) -> None:
        self._most = most_watchers
        self._lock = threading.Lock()
        self._watchers: dict[queue.Queue[Event], str] = {}  # with their owners

    def tell(self, model: str, event: str, data: Event | None = None) -> None:
        """Tells an event to all watchers; never blocks.

        Args:
            model: Its name; ``*``: all of them.
            event: What happened.
            data: Details.
        """
        told = {"model": model, "event": event, **({} if data is None else {"data": data})}
        with self._lock:
            for watcher in self._watchers:
                if watcher.qsize() < _MOST_UNREAD:
                    watcher.put(told)

    def join(self, owner: str) -> queue.Queue[Event]:
        """Return a queue of the events from now on, until :meth:`leave`.

        Args:
            owner: Who watches.

        Raises:
            CapacityError: Too many watch already.
        """
        watcher: queue.Queue[Event] = queue.Queue()
        with self._lock:
            if exceeds_share(Counter([*self._watchers.values(), owner]), owner, self._most):
                raise CapacityError(f"{len(self._watchers)} clients watch the models already")
            self._watchers[watcher] = owner
        return watcher

    def leave(self, watcher: queue.Queue[Event]) -> None:
        """End a watch; idempotent."""
        with self._lock:
            self._watchers.pop(watcher, None)
