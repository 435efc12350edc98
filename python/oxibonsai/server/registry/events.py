"""What happens to models, for those who watch: loading, unloading, downloads."""

from __future__ import annotations

import queue
import threading
from typing import Any

from oxibonsai.errors import CapacityError

Event = dict[str, Any]

# Events that a watcher has not read; it misses further ones.
_MOST_UNREAD = 1000


class ModelEvents:
    """Tells events to watchers, in llama-server's form: ``{"model", "event", "data"}``.

    Args:
        most_watchers: How many there may be; each of them blocks a thread of the server.
    """

    def __init__(self, most_watchers: int) -> None:
        self._most = most_watchers
        self._lock = threading.Lock()
        self._watchers: list[queue.Queue[Event]] = []

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

    def join(self) -> queue.Queue[Event]:
        """A queue of the events from now on, until :meth:`leave`.

        Raises:
            CapacityError: Too many watch already.
        """
        watcher: queue.Queue[Event] = queue.Queue()
        with self._lock:
            if len(self._watchers) >= self._most:
                raise CapacityError(f"{self._most} clients watch the models already")
            self._watchers.append(watcher)
        return watcher

    def leave(self, watcher: queue.Queue[Event]) -> None:
        """Ends a watch; idempotent."""
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
