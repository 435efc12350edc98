"""Where the server is between its start and its end, for probes, streams and new requests."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Phase(enum.IntEnum):
    """In order; a server never goes back."""

    LOADING = 0
    READY = 1
    DRAINING = 2
    STOPPED = 3


class Lifecycle:
    """The phase, and work that outlives its request (a background response, say)."""

    def __init__(self) -> None:
        self._phase = Phase.LOADING
        # Signal handlers move the phase on while the same thread may hold the lock.
        self._lock = threading.RLock()
        self._background = 0
        self._failed = False

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._phase

    @property
    def stopping(self) -> bool:
        """Streams must end now: the time for draining is nearly over."""
        return self._phase >= Phase.STOPPED

    def advance(self, phase: Phase) -> None:
        """Moves on to ``phase``; does nothing if the server is there or further."""
        with self._lock:
            self._phase = max(self._phase, phase)

    @property
    def failed(self) -> bool:
        """The process can't do its work any more: it drains, and another takes its place."""
        return self._failed

    def fail(self) -> None:
        """Notes that, and drains."""
        self._failed = True
        self.advance(Phase.DRAINING)

    @property
    def background(self) -> int:
        """Pieces of work that run without a request."""
        return self._background

    @contextmanager
    def work(self) -> Iterator[None]:
        """Counts the block as work that draining waits for."""
        with self._lock:
            self._background += 1
        try:
            yield
        finally:
            with self._lock:
                self._background -= 1
