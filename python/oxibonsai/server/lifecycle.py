"""The lifecycle phase of the server, for probes, streams and new requests."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oxibonsai.server.circuit_breaker import Circuits

# Streams are ended so long before the drain timeout.
STREAM_END_SECONDS = 1.5


class Phase(enum.IntEnum):
    """Phases in order; a server never returns to an earlier one."""

    LOADING = 0
    READY = 1
    DRAINING = 2
    STOPPED = 3


class Lifecycle:
    """The phase, and the number of background tasks (background responses, for example).

    Args:
        circuits: Of the models; they outlive the worker's process. None: all of them closed.

    Attributes:
        circuits: As given.
        has_successor: Whether another process serves on where this one has failed.
    """

    def __init__(self, circuits: Circuits | None = None) -> None:
        self.circuits = circuits or Circuits()
        self.has_successor = True
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
        """Whether streams must end now: the drain timeout is nearly reached."""
        return self._phase >= Phase.STOPPED

    def advance(self, phase: Phase) -> None:
        """Move on to ``phase``; does nothing if that phase was already reached."""
        with self._lock:
            self._phase = max(self._phase, phase)

    @property
    def failed(self) -> bool:
        """Whether the process can't work any more: it drains, and a new one replaces it."""
        return self._failed

    def fail(self) -> None:
        """Mark the process as failed and starts draining."""
        self._failed = True
        self.advance(Phase.DRAINING)

    @property
    def background(self) -> int:
        """Number of background tasks that run without a request."""
        return self._background

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the block as background work that draining waits for."""
        with self._lock:
            self._background += 1
        try:
            yield
        finally:
            with self._lock:
                self._background -= 1
