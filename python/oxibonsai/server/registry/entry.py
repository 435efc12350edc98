"""A model of the list, loaded or not, and events for those who watch the models."""

from __future__ import annotations

import queue
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from oxibonsai.errors import CapacityError, OxiBonsaiError
from oxibonsai.serial_queue import exceeds_share
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.registry.catalog import ModelSpec
from oxibonsai.server.registry.instance import Instance, Stamp

# The folders of an absolute path, but not the rest of an address.
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/:'\"]+/)+")


class Status(Enum):
    """The state of a model, in llama-server's words."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    SLEEPING = "sleeping"


@dataclass
class Entry:
    """A model of the list.

    Attributes:
        spec: What it is.
        instance: It, loaded; None while it is not.
        loading: Whether it is loading or waits to be loaded.
        waiting: Requests that wait for it, by owner.
        wanted: Load it even if no request waits: somebody asked for that.
        sleeping: It was unloaded because nobody used it.
        failure: Why it could not be loaded; None if that is untried or went well.
        seen: The stamp of its file when that was last looked at.
        info: What ``/v1/models`` lists; of the last time that it was loaded.
        told: The state that watchers were last told.
    """

    spec: ModelSpec
    instance: Instance | None = None
    loading: bool = False
    waiting: Counter[str] = field(default_factory=Counter)
    wanted: bool = False
    sleeping: bool = False
    failure: OxiBonsaiError | None = None
    seen: Stamp | None = None
    info: ModelInfo | None = None
    told: Status = Status.UNLOADED

    @property
    def status(self) -> Status:
        """Whether it is loaded."""
        if self.instance is not None:
            return Status.LOADED
        if self.loading:
            return Status.LOADING
        return Status.SLEEPING if self.sleeping else Status.UNLOADED

    @property
    def failure_text(self) -> str:
        """Return why it could not be loaded; files keep their names, and lose their folders."""
        text = str(self.failure)
        source = self.spec.settings.model or ""
        folder = source.rpartition("/")[0]
        # It may have spaces, at which no pattern could tell a path's end.
        if folder and not source.startswith(("hf:", "pip:")):
            text = text.replace(folder + "/", "")
        return _FOLDERS.sub("", text)


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
        """Tell an event to all watchers; never blocks.

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
