"""Several engines over one set of weights, and how many requests may run on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
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
        on_failure: Called when a step of an engine has failed: the pool takes no more requests.
    """

    def __init__(
        self,
        engines: list[Engine],
        *,
        parallel: int,
        queue: int = 256,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        if parallel < 1:
            raise RequestError(f"parallel is {parallel}; it must be at least 1")
        if queue < 0:
            raise RequestError(f"queue is {queue}; it must be 0 or more")
        self.engines = engines
        self.parallel = parallel
        self._most_waiting = queue
        self._busy = [0] * len(engines)
        self._waiting: list[Place] = []  # in the order of arrival
        self._changed = threading.Condition()
        self._closed = False
        self._on_failure = on_failure
        self._runners: list[EngineRunner] = []
        self._runners += [EngineRunner(e, self._failed) for e in engines]

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        replicas: int = 1,
        parallel: int = 4,
        queue: int = 256,
        threads: int | None = None,
        on_failure: Callable[[], None] | None = None,
        **options: Any,
    ) -> EnginePool:
        """Loads a model once and makes engines over its weights.

        Args:
            source: What :func:`oxibonsai.load` takes.
            replicas: Engines; a device that can't be shared has one.
            parallel: Requests on each engine at once.
            queue: Requests that may wait.
            threads: Worker threads, shared out among the engines; each has at least one.
            on_failure: As of the class.
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
        return cls(engines, parallel=parallel, queue=queue, on_failure=on_failure)

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

    def after_steps(self, call: Callable[[], None]) -> None:
        """Has this called after each step of an engine, in its thread; it may not wait for anything."""
        for runner in self._runners:
            runner.after_step = call

    @contextmanager
    def permit(self, timeout: float | None = None) -> Iterator[Engine]:
        """An engine with room for one request, in the order of arrival.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.

        Raises:
            CapacityError: The queue is full, the time is up, or the pool is closed.
        """
        place = self.queue_up()
        try:
            engine = place.wait(timeout)
            if engine is None:
                raise CapacityError("no engine was free in time: try again later")
            yield engine
        finally:
            place.leave()

    def queue_up(self) -> Place:
        """A place in the queue, or an engine at once where one is free.

        Raises:
            CapacityError: The queue is full, or the pool is closed.
        """
        self.engines[0].lock.check_process()
        place = Place(self)
        with self._changed:
            self._check_open()
            self._waiting.append(place)
            self._hand_out()
            if place.engine is None and len(self._waiting) > self._most_waiting:
                self._waiting.remove(place)
                raise CapacityError(
                    f"{self.running} requests run and {self.waiting} wait: try again later"
                )
        return place

    def close(self) -> None:
        """Refuses new requests, cancels those that run and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for runner in self._runners:
            runner.close()

    def wait_for(self, place: Place, timeout: float | None) -> Engine | None:
        """The engine that a place has come to; None where that took too long."""
        with self._changed:
            self._changed.wait_for(lambda: place.engine is not None or self._ended, timeout)
            self._check_open()
            return place.engine

    def give_up(self, place: Place) -> None:
        """Frees what a place holds: its engine, or its position in the queue."""
        with self._changed:
            if place.engine is not None:
                self._busy[self.engines.index(place.engine)] -= 1
                place.engine = None
                self._hand_out()
            elif place in self._waiting:
                self._waiting.remove(place)

    @property
    def _ended(self) -> bool:
        return self._closed or self.failure is not None

    def _failed(self) -> None:
        with self._changed:
            self._changed.notify_all()
        if self._on_failure is not None:
            self._on_failure()

    def _check_open(self) -> None:
        if self._closed:
            raise CapacityError("the engines have been closed")
        if self.failure is not None:
            raise CapacityError("an engine has stopped: the log has the reason; start anew")

    def _hand_out(self) -> None:
        """Gives free engines to the first of the queue."""
        # What ended gives nothing out; who waits is told so.
        while not self._ended and self._waiting and (free := self._free_engine()) is not None:
            self._busy[free] += 1
            self._waiting.pop(0).engine = self.engines[free]
            self._changed.notify_all()

    def _free_engine(self) -> int | None:
        """The engine with the fewest requests; None where all are full."""
        least = min(range(len(self.engines)), key=lambda i: self._busy[i])
        return least if self._busy[least] < self.parallel else None


class Place:
    """Where one request stands: in the queue of a pool, later on one of its engines.

    Attributes:
        engine: Its engine; None while it waits.
    """

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool
        self.engine: Engine | None = None

    def wait(self, timeout: float | None = None) -> Engine | None:
        """Its engine, once it has one.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.

        Returns:
            None where it took too long; the place in the queue is kept.

        Raises:
            CapacityError: The pool is closed.
        """
        return self._pool.wait_for(self, timeout)

    def leave(self) -> None:
        """Lets the next one in; does no harm the second time."""
        self._pool.give_up(self)
