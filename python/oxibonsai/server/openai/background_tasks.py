"""Work that outlives its request, limited, cancellable and streamed, or ended by a restart."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from oxibonsai.errors import CapacityError
from oxibonsai.serial_queue import exceeds_share
from oxibonsai.server.access import acting_for
from oxibonsai.server.http.client import POLL_SECONDS
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai.assistants.objects import ended_step
from oxibonsai.server.paging import all_of
from oxibonsai.server.stores import NoSuchObjectError, Object, Store

_log = logging.getLogger("oxibonsai.server")
# Number of finished tasks whose events can still be read.
_KEPT = 16

# Owner and id of the object that a task works on.
Key = tuple[str, str]


class BackgroundTask:
    """A piece of work and the events that it publishes."""

    def __init__(self) -> None:
        self._events: list[Object] = []
        self._changed = threading.Condition()
        self._finished = False
        self._cancelled = threading.Event()
        self._work: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether cancellation was requested."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Request cancellation; the task ends within one step of the engine.

        A task that still waits for a thread is run by the caller: it sees the cancellation and ends.
        """
        self._cancelled.set()
        self.run()

    def queue(self, work: Callable[[], None]) -> None:
        """Set the work of :meth:`run`."""
        with self._changed:
            self._work = work

    def run(self) -> None:
        """Do the work, unless another thread has started it."""
        with self._changed:
            work, self._work = self._work, None
        if work is not None:
            work()

    def publish(self, event: Object) -> None:
        """Append an event for the readers."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def finish(self) -> None:
        """Mark the end of the events."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds``; return whether the task has finished."""
        with self._changed:
            return self._changed.wait_for(lambda: self._finished, seconds)

    def follow(self, start: int = 0) -> Iterator[Object | None]:
        """Yield events from index ``start`` to the end; None when there was no event for a while."""
        index = start
        while True:
            with self._changed:
                ready = lambda: len(self._events) > index or self._finished  # noqa: E731, B023
                self._changed.wait_for(ready, POLL_SECONDS)
                events, finished = self._events[index:], self._finished
            if not events:
                if finished:
                    return
                yield None
            yield from events
            index += len(events)


class BackgroundTasks:
    """Runs tasks in its own threads; the owner with the fewest running tasks goes first.

    Args:
        lifecycle: Counts the tasks, so that draining waits for them.
        running: How many run at once; each owner may always run one.
        waiting: How many may wait; more are rejected unless the owner has less than its fair share.
    """

    def __init__(self, lifecycle: Lifecycle, *, running: int, waiting: int) -> None:
        self._lifecycle = lifecycle
        self._most = running + waiting
        self._most_running = running
        # Threads are created on demand, that is, after the fork.
        self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="background")
        self._lock = threading.Lock()
        self._queue: list[
            tuple[str, BackgroundTask]
        ] = []  # with their owners, in the order of arrival
        self._running: Counter[str] = Counter()  # by owner
        self._open: dict[Key, BackgroundTask] = {}
        self._kept: OrderedDict[Key, BackgroundTask] = OrderedDict()

    def reserve(self, key: Key) -> BackgroundTask:
        """Reserve a task for an object that is about to be created; then :meth:`start` or :meth:`drop`.

        Raises:
            CapacityError: Too many tasks run or wait.
        """
        task = BackgroundTask()
        with self._lock:
            owners = Counter(owner for owner, _ in [*self._open, key])
            if exceeds_share(owners, key[0], self._most):
                raise CapacityError(
                    f"{len(self._open)} background tasks run or wait: try again later"
                )
            self._open[key] = task
        return task

    def drop(self, key: Key, task: BackgroundTask) -> None:
        """Release a reserved task that was not started."""
        with self._lock:
            if self._open.get(key) is task:
                del self._open[key]

    def start(self, key: Key, task: BackgroundTask, work: Callable[[BackgroundTask], None]) -> None:
        """Run ``work``, which handles its own errors, as soon as a thread is free.

        If the task is cancelled before that, it runs at once in the thread that cancels it.
        """
        # Counted while it waits, too: draining must not end before it has started.
        counted = contextlib.ExitStack()
        counted.enter_context(self._lifecycle.work())

        def run() -> None:
            try:
                with counted, acting_for(key[0]):
                    work(task)
            except Exception:
                _log.exception("unhandled error in a background task")
            finally:
                task.finish()
                self._keep(key, task)

        task.queue(run)
        with self._lock:
            self._queue.append((key[0], task))
        self._dispatch()

    def find(self, key: Key) -> BackgroundTask | None:
        """Return the task of an object; None if it ended long ago or ran in another process."""
        with self._lock:
            return self._open.get(key) or self._kept.get(key)

    def cancel(self, key: Key, *, seconds: float = 0.0) -> bool:
        """Cancel the task of an object and wait up to ``seconds``; return whether there is one."""
        task = self.find(key)
        if task is None:
            return False
        task.cancel()
        task.wait(seconds)
        return True

    def _dispatch(self) -> None:
        """Start waiting tasks on free threads."""
        with self._lock:
            while self._queue:
                entry = min(self._queue, key=lambda e: self._running[e[0]])
                owner, task = entry
                if self._running.total() >= self._most_running and self._running[owner] > 0:
                    return
                self._queue.remove(entry)
                self._running[owner] += 1
                self._threads.submit(self._run, owner, task)

    def _run(self, owner: str, task: BackgroundTask) -> None:
        try:
            task.run()
        finally:
            with self._lock:
                self._running[owner] -= 1
                self._running += Counter()  # forgets those at 0
            self._dispatch()

    def _keep(self, key: Key, task: BackgroundTask) -> None:
        with self._lock:
            # Another task for the same object may have been reserved.
            if self._open.get(key) is task:
                del self._open[key]
            self._kept[key] = task
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)


_MESSAGE = "The server was stopped while processing this."
_ERROR = {"code": "server_error", "message": _MESSAGE}


def fail_interrupted(store: Store, living: frozenset[int] = frozenset()) -> int:
    """Fail all responses and runs that were in progress, except those of servers that live.

    Called before requests are accepted, or, where servers share the store, when one of them is gone.
    A run that waits for tool outputs goes on waiting.

    Args:
        store: The store.
        living: Numbers of the servers that share it and live.

    Returns:
        The number of failed responses and runs.
    """
    count = 0
    for status in ("queued", "in_progress", "cancelling"):
        for owner, record in store.responses.search(f'"status":"{status}"'):
            if record["response"]["status"] == status and record.get("server") not in living:
                failed = {**record["response"], "status": "failed", "error": _ERROR}
                count += _ended(partial(_replace, store, owner, {**record, "response": failed}))
        for owner, run in store.runs.search(f'"status":"{status}"'):
            if run["status"] == status and run.get("server") not in living:
                count += _ended(partial(_fail_run, store, owner, run))
    if count:
        _log.warning("%d interrupted responses and runs were marked as failed", count)
    return count


def _ended(end: Callable[[], None]) -> bool:
    """End an object, unless it was deleted in the meantime."""
    try:
        end()
    except NoSuchObjectError:
        return False
    return True


def _replace(store: Store, owner: str, record: Object) -> None:
    store.responses.change(owner, record["id"], lambda _: record)


def _fail_run(store: Store, owner: str, run: Object) -> None:
    now = int(time.time())
    failed = {"status": "failed", "failed_at": now, "last_error": _ERROR}
    for step in all_of(store.run_steps, owner, run["id"]):
        if step["status"] == "in_progress":
            store.run_steps.change(
                owner, step["id"], lambda s: ended_step(s, "failed", last_error=_ERROR)
            )
    incomplete = {
        "status": "incomplete",
        "incomplete_at": now,
        "incomplete_details": {"reason": "run_failed"},
    }
    for message in all_of(store.messages, owner, run["thread_id"]):
        if message["run_id"] == run["id"] and message["status"] == "in_progress":
            store.messages.change(owner, message["id"], lambda m: {**m, **incomplete})
    # Last: when the run is seen as ended, its parts have ended too.
    store.runs.change(owner, run["id"], lambda r: {**r, **failed, "usage": r["used"]})
