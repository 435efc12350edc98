"""Several engines over one set of weights, and the queue of requests for them."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load, replicate
from oxibonsai.engine.runner import EngineRunner
from oxibonsai.engine.sequence import Sequence
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.serial_queue import exceeds_share


class EnginePool:
    """Engines that share their weights, each with a cache and a stepping thread of its own.

    One engine steps all its sequences as a batch and reads the weights once for all of them, so one
    with several slots is the faster choice; more engines keep requests from sharing steps.

    Permits and queue are shared out between tenants. A free permit goes to the one that holds the
    fewest. Where one holds at least two more than another whose request waits, its newest request is
    paused and gives its permit away: it goes on later, with the same text. A tenant has its part of
    the queue even where others have filled it.

    Args:
        engines: Of one model; :meth:`from_pretrained` makes them.
        parallel: Requests that may run on each engine at once.
        queue: Requests that may wait for one of these permits; more are refused, unless a tenant has
            less than its part of them waiting.
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
        self._waiting: list[EngineRequest] = []  # in the order of arrival, the paused ones first
        self._running: list[EngineRequest] = []  # in the order in which they got their permits
        self._turns: dict[str, int] = {}  # when a tenant that is here was last given a permit
        self._clock = itertools.count(1)
        self._lock = threading.RLock()
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
        """Load a model once and make engines over its weights.

        Args:
            source: What :func:`oxibonsai.load` takes.
            replicas: Engines; a GPU runs one.
            parallel: Requests on each engine at once.
            queue: Requests that may wait.
            threads: Worker threads, shared out among the engines; each has at least one.
            on_failure: As of the class.
            options: As of :func:`oxibonsai.load`.

        Raises:
            RequestError: A number is out of range.
            UnsupportedError: Several replicas on a device that runs one engine.
        """
        if replicas < 1:
            raise RequestError(f"replicas is {replicas}; it must be at least 1")
        first = load(source, threads=threads, parallel=parallel, **options)
        engines = replicate(first, replicas)
        return cls(engines, parallel=parallel, queue=queue, on_failure=on_failure)

    @property
    def running(self) -> int:
        """Return the requests that hold a permit."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Return the requests that wait for one, the paused ones among them."""
        return len(self._waiting)

    @property
    def permits(self) -> int:
        """Return the requests that may run at once."""
        return self.parallel * len(self.engines)

    @property
    def failure(self) -> BaseException | None:
        """Return the error that stopped an engine; None while all of them run."""
        return next((r.failure for r in self._runners if r.failure is not None), None)

    def after_steps(self, call: Callable[[], None]) -> None:
        """Call this after each step of an engine, in the engine's thread; it must not block."""
        for runner in self._runners:
            runner.after_step = call

    @contextmanager
    def permit(self, timeout: float | None = None, tenant: str = "") -> Iterator[Engine]:
        """Yield an engine with room for one request, in the order of arrival.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.
            tenant: Whose request it is.

        Raises:
            CapacityError: The queue is full, the time is up, or the pool is closed.
        """
        request = self.queue_up(tenant)
        try:
            engine = request.wait(timeout)
            if engine is None:
                raise CapacityError("no engine was free in time: try again later")
            yield engine
        finally:
            request.leave()

    def queue_up(self, tenant: str = "") -> EngineRequest:
        """Put a request into the queue; it gets an engine at once where one is free.

        Args:
            tenant: Whose request it is.

        Raises:
            CapacityError: The queue is full, or the pool is closed.
        """
        self.engines[0].lock.check_process()
        request = EngineRequest(self, tenant)
        with self._lock:
            self._check_open()
            self._waiting.append(request)
            self._hand_out()
            if request.engine is None and self._is_full(tenant):
                self._remove(request)
                raise CapacityError(
                    f"{self.running} requests run and {self.waiting} wait: try again later"
                )
        return request

    def close(self) -> None:
        """Refuse new requests, cancel those that run, end the threads and write kept state to disk."""
        with self._lock:
            self._closed = True
            self._wake_all()
        for runner in self._runners:
            runner.close()
        if self.failure is not None:  # its state may be unreadable
            return
        for engine in self.engines:
            with engine.lock:
                engine.cache.close()

    def wait_for(self, request: EngineRequest, timeout: float | None) -> Engine | None:
        """Return the engine that a request was given; None after the timeout."""
        request.ready.wait(timeout)
        with self._lock:
            self._check_open()
            return request.engine

    def give_up(self, request: EngineRequest) -> None:
        """Free what a request holds: its engine, or its position in the queue."""
        with self._lock:
            self._remove(request)
            request.engine = None
            self._hand_out()

    def attach(self, request: EngineRequest, sequences: list[Sequence]) -> None:
        """Name the sequences of a request: from now on it can be paused."""
        with self._lock:
            request.sequences = sequences
            self._hand_out()

    @property
    def _ended(self) -> bool:
        return self._closed or self.failure is not None

    def _failed(self) -> None:
        with self._lock:
            self._wake_all()
        if self._on_failure is not None:
            self._on_failure()

    def _wake_all(self) -> None:
        for request in self._waiting:
            request.ready.set()

    def _check_open(self) -> None:
        if self._closed:
            raise CapacityError("the engines have been closed")
        if self.failure is not None:
            raise CapacityError("an engine has stopped: the log has the reason; start again")

    def _remove(self, request: EngineRequest) -> None:
        for requests in (self._waiting, self._running):
            if request in requests:
                requests.remove(request)
        here = {p.tenant for p in (*self._waiting, *self._running)}
        self._turns = {t: turn for t, turn in self._turns.items() if t in here}

    def _is_full(self, tenant: str) -> bool:
        """Return whether too many wait, and not too few of them are this tenant's."""
        waiting = Counter(p.tenant for p in self._waiting if not p.paused)
        return exceeds_share(waiting, tenant, self._most_waiting)

    def _hand_out(self) -> None:
        """Return permits to those that wait, as long as there are any for them."""
        # A closed or failed pool gives no permits; waiting requests get an error.
        while not self._ended and any(self._admit(request) for request in self._next_of_each()):
            pass

    def _next_of_each(self) -> list[EngineRequest]:
        """Return each tenant's first request, that of the tenant with the fewest permits first."""
        held = Counter(p.tenant for p in self._running)
        first: dict[tuple[str, Engine | None], EngineRequest] = {}
        for request in self._waiting:
            # A paused one goes on where it was, so it holds up only what has to run there too.
            first.setdefault((request.tenant, request.engine), request)
        return sorted(first.values(), key=lambda p: (held[p.tenant], self._turns.get(p.tenant, 0)))

    def _admit(self, request: EngineRequest) -> bool:
        """Return a waiting request a permit: a free one, or that of a tenant that has two more."""
        busy = [sum(p.engine is e for p in self._running) for e in self.engines]
        choice = [i for i, e in enumerate(self.engines) if request.engine in (None, e)]
        free = min(choice, key=lambda i: busy[i])
        if busy[free] >= self.parallel:
            victim = self._victim(request)
            if victim is None:
                return False
            free = self.engines.index(victim.engine)  # type: ignore[arg-type]  # it runs
            self._running.remove(victim)
            victim.set_paused(True)
            self._waiting.insert(0, victim)  # it came before those that were paused already
        self._waiting.remove(request)
        self._running.append(request)
        self._turns[request.tenant] = next(self._clock)
        request.engine = self.engines[free]
        request.ready.set()
        request.set_paused(False)
        self._runners[free].wake()
        return True

    def _victim(self, request: EngineRequest) -> EngineRequest | None:
        """Return the newest request of the tenant with most permits, if pausing it is fair."""
        held = Counter(p.tenant for p in self._running)
        candidates = [
            p for p in self._running
            if p.sequences and held[p.tenant] >= held[request.tenant] + 2
            and request.engine in (None, p.engine)
        ]  # fmt: skip
        return max(reversed(candidates), key=lambda p: held[p.tenant], default=None)


class EngineRequest:
    """A request in the queue of a pool, later on one of its engines.

    Attributes:
        tenant: Whose it is.
        engine: Its engine; None while it waits for its first.
        sequences: What runs there.
        paused: It is back in the queue, its sequences are out of the steps.
        ready: Set when it has an engine, or never will have one.
    """

    def __init__(self, pool: EnginePool, tenant: str) -> None:
        self._pool = pool
        self.tenant = tenant
        self.engine: Engine | None = None
        self.sequences: list[Sequence] = []
        self.paused = False
        self.ready = threading.Event()

    def attach(self, sequences: list[Sequence]) -> None:
        """Name the sequences that it runs, so that it can be paused for another tenant's."""
        self._pool.attach(self, sequences)

    def set_paused(self, paused: bool) -> None:
        """Take the sequences out of the steps, or back; for the pool alone."""
        self.paused = paused
        for s in self.sequences:
            s.paused = paused

    def wait(self, timeout: float | None = None) -> Engine | None:
        """Wait for its engine.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.

        Returns:
            None after the timeout; the position in the queue is kept.

        Raises:
            CapacityError: The pool is closed.
        """
        return self._pool.wait_for(self, timeout)

    def leave(self) -> None:
        """Free its engine or its position in the queue; idempotent."""
        self._pool.give_up(self)
