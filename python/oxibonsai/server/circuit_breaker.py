"""Circuit breakers: a model that keeps failing for reasons of the machine is left alone for a while.

Five failures in a row open a model's circuit for 30 seconds, in which its requests are refused at once.
Then at most three run at a time to try it: two successes close the circuit, a failure opens it again.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

FAILURES, OPEN_SECONDS, PROBES, SUCCESSES = 5, 30.0, 3, 2
# How soon a request may come again that finds all probes running.
_BUSY_SECONDS = 1.0
_MOST_MODELS = 256  # further ones have no circuit
_KEY_BYTES = 8
_ROW = struct.Struct(f"<{_KEY_BYTES}sIIId")


class State(IntEnum):
    """A circuit's state, as the metrics show it."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


@dataclass
class _Row:
    """The record of one model.

    Attributes:
        key: A hash of its name.
        failures: In a row, while it is closed.
        successes: Of probes.
        running: Requests that run.
        opened_at: When it was opened; 0: it is closed.
    """

    key: bytes
    failures: int = 0
    successes: int = 0
    running: int = 0
    opened_at: float = 0.0


class Circuits:
    """The circuits of all models, in memory that a worker shares with the arbiter and later workers.

    Made before the fork. One process changes them at a time: the worker, or the arbiter when that has died.

    Args:
        clock: Seconds, the same in all processes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._page = mmap.mmap(-1, _MOST_MODELS * _ROW.size)
        self._lock = threading.RLock()

    def state(self, model: str) -> State:
        """Return the state of a model's circuit."""
        with self._lock:
            found = self._find(model)
        return State.CLOSED if found is None else self._state_of(found[1])

    def enter(self, model: str) -> float | None:
        """Begin a request.

        Returns:
            None: it may run, and :meth:`leave` ends it; else the seconds after which it may come again.
        """
        with self._lock:
            found = self._find(model)
            if found is None:
                return None
            at, row = found
            state = self._state_of(row)
            if state is State.OPEN:
                return row.opened_at + OPEN_SECONDS - self._clock()
            if state is State.HALF_OPEN and row.running >= PROBES:
                return _BUSY_SECONDS
            row.running += 1
            self._put(at, row)
            return None

    def leave(self, model: str, *, succeeded: bool) -> None:
        """End a request that :meth:`enter` let run; one that was cancelled did not succeed, nor fail."""
        with self._lock:
            found = self._find(model)
            if found is None:
                return
            at, row = found
            row.running = max(0, row.running - 1)
            state = self._state_of(row)
            if succeeded and state is State.CLOSED:
                row.failures = 0
            elif succeeded and state is State.HALF_OPEN:
                row.successes += 1
                if row.successes >= SUCCESSES:
                    row.failures, row.successes, row.opened_at = 0, 0, 0.0
            self._put(at, row)

    def fail(self, model: str) -> None:
        """Count a failure of the machine: of whatever ran then, once."""
        with self._lock:
            found = self._find(model)
            if found is not None:
                self._fail(*found)

    def worker_died(self) -> None:
        """Count a failure of each model that was answering requests in the worker."""
        with self._lock:
            for at, row in list(self._rows()):
                if row.running:
                    row.running = 0
                    self._fail(at, row)

    def _fail(self, at: int, row: _Row) -> None:
        row.failures += 1
        state = self._state_of(row)
        if state is State.HALF_OPEN or (state is State.CLOSED and row.failures >= FAILURES):
            row.opened_at, row.successes = self._clock(), 0
        self._put(at, row)

    def _state_of(self, row: _Row) -> State:
        if not row.opened_at:
            return State.CLOSED
        waits = self._clock() < row.opened_at + OPEN_SECONDS
        return State.OPEN if waits else State.HALF_OPEN

    def _rows(self) -> Iterator[tuple[int, _Row]]:
        for at in range(0, _MOST_MODELS * _ROW.size, _ROW.size):
            row = _Row(*_ROW.unpack_from(self._page, at))
            if row.key == bytes(_KEY_BYTES):
                return
            yield at, row

    def _find(self, model: str) -> tuple[int, _Row] | None:
        """Return a model's row, a new one at the end; None where there is no room for it."""
        key = hashlib.blake2b(
            model.encode("utf-8", "surrogateescape"), digest_size=_KEY_BYTES
        ).digest()
        end = 0
        for at, row in self._rows():
            if row.key == key:
                return at, row
            end = at + _ROW.size
        return None if end == len(self._page) else (end, _Row(key))

    def _put(self, at: int, row: _Row) -> None:
        _ROW.pack_into(
            self._page, at, row.key, row.failures, row.successes, row.running, row.opened_at
        )


class CircuitMetrics:
    """Tells the states of circuits in Prometheus' format.

    Args:
        registry: Of the server's metrics.
        states: Returns the state of each model by its name.
    """

    def __init__(
        self, registry: CollectorRegistry, states: Callable[[], Iterable[tuple[str, State]]]
    ) -> None:
        self._states = states
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Yield the metric without values, so that no model is looked at when it is registered."""
        yield self._metric()

    def collect(self) -> Iterator[Metric]:
        """Yield the states of now."""
        metric = self._metric()
        for name, state in self._states():
            metric.add_metric([name], float(state))
        yield metric

    @staticmethod
    def _metric() -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "oxibonsai_circuit_state",
            "Circuit of a model: 0 closed, 1 half open, 2 open.",
            labels=["model"],
        )
