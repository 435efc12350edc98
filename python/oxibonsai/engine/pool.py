"""Several engines over one set of weights, and how many requests may run on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load, replicate
from oxibonsai.engine.runner import EngineRunner
from oxibonsai.errors import CapacityError, RequestError


class EnginePool:
    """Engines that share their weights, each with a cache and a stepping thread of its own.

    One engine steps all its sequences as a batch and reads the weights once for all of them, so one
    with several slots is the faster choice; more engines keep requests from sharing steps.

    Args:
        engines: Of one model; :meth:`from_pretrained` makes them.
        parallel: Requests that may run on each engine at once.
        queue: Requests that may wait for one of these permits; more are refused.
    """

    def __init__(self, engines: list[Engine], *, parallel: int, queue: int = 256) -> None:
        if parallel < 1:
            raise RequestError(f"parallel is {parallel}; it must be at least 1")
        if queue < 0:
            raise RequestError(f"queue is {queue}; it must be 0 or more")
        self.engines = engines
        self.parallel = parallel
        self._most_waiting = queue
        self._runners = [EngineRunner(e) for e in engines]
        self._busy = [0] * len(engines)
        self._waiting: list[object] = []  # tickets, in the order of arrival
        self._changed = threading.Condition()
        self._closed = False

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        replicas: int = 1,
        parallel: int = 4,
        queue: int = 256,
        threads: int | None = None,
        **options: Any,
    ) -> EnginePool:
        """Loads a model once and makes engines over its weights.

        Args:
            source: What :func:`oxibonsai.load` takes.
            replicas: Engines; a device that can't be shared has one.
            parallel: Requests on each engine at once.
            queue: Requests that may wait.
            threads: Worker threads, shared out among the engines; each has at least one.
            options: As of :func:`oxibonsai.load`.

        Raises:
            RequestError: A number is out of range.
        """
        if replicas < 1:
            raise RequestError(f"replicas is {replicas}; it must be at least 1")
        first = load(source, threads=threads, parallel=parallel, **options)
        if not first.model.shareable:
            replicas = 1
        engines = replicate(first, replicas)
        return cls(engines, parallel=parallel, queue=queue)

    @property
    def running(self) -> int:
        """Requests that hold a permit."""
        return sum(self._busy)

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._waiting)

    @property
    def permits(self) -> int:
        """Requests that may run at once."""
        return self.parallel * len(self.engines)

    @property
    def failure(self) -> BaseException | None:
        """What stopped an engine; None while all is well."""
        return next((r.failure for r in self._runners if r.failure is not None), None)

    @contextmanager
    def permit(self, timeout: float | None = None) -> Iterator[Engine]:
        """An engine with room for one request, in the order of arrival.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.

        Raises:
            CapacityError: The queue is full, the time is up, or the pool is closed.
        """
        index = self._acquire(timeout)
        try:
            yield self.engines[index]
        finally:
            with self._changed:
                self._busy[index] -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Refuses new requests, cancels those that run and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for runner in self._runners:
            runner.close()

    def _acquire(self, timeout: float | None) -> int:
        ticket = object()
        with self._changed:
            free = self._free_engine()
            if self._waiting or free is None:
                if len(self._waiting) >= self._most_waiting:
                    raise CapacityError(
                        f"{self.running} requests run and {self.waiting} wait: try again later"
                    )
                free = self._wait(ticket, timeout)
            if free is None:
                raise CapacityError("no engine was free in time: try again later")
            self._busy[free] += 1
            return free

    def _wait(self, ticket: object, timeout: float | None) -> int | None:
        """Queues until it is the first and an engine is free; None where that took too long."""
        self._waiting.append(ticket)
        try:
            ready = self._changed.wait_for(
                lambda: (
                    self._closed or (self._waiting[0] is ticket and self._free_engine() is not None)
                ),
                timeout,
            )
            return self._free_engine() if ready else None
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()

    def _free_engine(self) -> int | None:
        """The engine with the fewest requests; None where all are full."""
        if self._closed:
            raise CapacityError("the engines have been closed")
        least = min(range(len(self.engines)), key=lambda i: self._busy[i])
        return least if self._busy[least] < self.parallel else None
