"""Runs batches: a few requests at a time, in turn for each owner, across restarts of the server."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from oxibonsai.errors import CapacityError
from oxibonsai.server.access import acting_for
from oxibonsai.server.batches.batch_files import InvalidInputError, read_requests, write_results
from oxibonsai.server.batches.records import (
    ENDED,
    MOST_STARTS,
    body_of,
    count_results,
    succeeded,
    with_status,
)
from oxibonsai.server.batches.request_line import answer_request, refuse_request
from oxibonsai.server.elsewhere import Elsewhere
from oxibonsai.server.errors import ApiError
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.paging import all_of
from oxibonsai.server.server import Server
from oxibonsai.server.stores import NoSuchObjectError, Object, StoreError, TooLargeError
from oxibonsai.server.stores.collection import new_id

_log = logging.getLogger("oxibonsai.server")

_POLL_SECONDS = 0.25
# While the server is busy, a request is tried again after these times, about seven minutes in all.
_RETRY_SECONDS = (0.5, 1, 2, 4, 8, 16, *[32] * 12)
_EXPIRED = {
    "code": "batch_expired",
    "message": "This request could not be executed before the completion window expired.",
}

# Requests that are stored together are at most so many, or so many bytes and one more request.
_GROUP = 500
_GROUP_BYTES = 2**20

Key = tuple[str, str]


class TakenOverError(Exception):
    """Another server goes on with the batch, since it took this one for gone."""


class OpenBatch:
    """A batch that has not ended.

    Attributes:
        owner: Its owner.
        id: Its id.
        expires: When it ends at the latest, in Unix seconds.
        counts: Requests in all (``total``), ``succeeded`` and ``errored``.
        pending: Its requests without a result; None before they have been looked up.
        exhausted: Whether all of them have been begun.
        stopped: Its status at the end, if it ends early: ``cancelled`` or ``expired``.
        active: How many threads work on it.
        turn: The latest number that a thread drew when it began to work on it.
        alone: Whether one of them begins or ends it, so that no other may work on it.
        counted: Whether it is stored that this server has begun to read its input file.
    """

    def __init__(self, owner: str, record: Object) -> None:
        self.owner = owner
        self.id: str = record["id"]
        self.expires: int = record["times"]["expires"]
        self.counts: Counter[str] = Counter(record["counts"])
        self.pending: Iterator[Object] | None = None
        self.exhausted = False
        self.stopped = "cancelled" if record["status"] == "cancelling" else None
        self.active = 0
        self.turn = 0
        self.alone = False
        self.counted = False
        self._reading = threading.Lock()

    def take(self) -> Object | None:
        """Return the next request."""
        with self._reading:
            request = None if self.pending is None else next(self.pending, None)
            self.exhausted = self.exhausted or request is None
            return request


class BatchRunner:
    """Runs batches in threads of its own, which end when there are none.

    Args:
        app: The application; its routes answer the requests.
        elsewhere: Batches of other servers.
        threads: How many requests are answered at the same time.
        most_of_owner: How many unfinished batches an owner may have.
    """

    def __init__(
        self, app: Server, elsewhere: Elsewhere, *, threads: int, most_of_owner: int
    ) -> None:
        self._app = app
        self._elsewhere = elsewhere
        self._lifecycle = app.lifecycle
        self._batches = app.store.batches
        self._requests = app.store.batch_requests
        self._most_threads = threads
        self._most_of_owner = most_of_owner
        self._changed = threading.Condition()
        self._open: dict[Key, OpenBatch] = {}
        self._turns = 0
        self._threads = 0

    def resume(self, living: frozenset[int] = frozenset()) -> None:
        """Go on with unfinished batches, except those of servers that live.

        Args:
            living: Numbers of the servers that share the store and live.
        """
        for status in ("validating", "in_progress", "cancelling", "finalizing"):
            for owner, record in self._batches.search(f'"status":"{status}"'):
                if record["status"] == status and record.get("server") not in living:
                    self._take_over(owner, record)

    def _take_over(self, owner: str, record: Object) -> None:
        """Begin a batch of a server that ended, unless another one has taken it over."""
        of_ended = record.get("server")

        def edit(current: Object) -> Object:
            taken = current.get("server") != of_ended or current["status"] in ENDED
            return current if taken else current | self._elsewhere.mark

        with contextlib.suppress(NoSuchObjectError):  # it was deleted
            record = self._batches.change(owner, record["id"], edit)
            if record["status"] not in ENDED and not self._elsewhere.has(record):
                self.start(owner, record)

    def check_room(self, owner: str) -> None:
        """Raise ApiError 429 if the owner can't have another batch."""
        with self._changed:
            count = sum(batch.owner == owner for batch in self._open.values())
        if count >= self._most_of_owner:
            raise ApiError(
                429,
                f"{count} batches of this API key have not ended: wait for them or cancel some.",
                code="too_many_batches",
            )

    def create(self, owner: str, record: Object) -> Object:
        """Store a new batch as this server's work; return what was stored."""
        return self._batches.create(owner, record | self._elsewhere.mark)

    def start(self, owner: str, record: Object) -> None:
        """Begin a batch of this server."""
        with self._changed:
            self._open[owner, record["id"]] = OpenBatch(owner, record)
            while self._threads < self._most_threads:
                self._threads += 1
                threading.Thread(target=self._work, name="batches", daemon=True).start()
            self._changed.notify_all()

    def counts(self, owner: str, record: Object) -> Counter[str]:
        """Return how many requests of a batch there are in all, have succeeded, and have failed."""
        with self._changed:
            batch = self._open.get((owner, record["id"]))
            return Counter(record["counts"] if batch is None else batch.counts)

    def cancel(self, owner: str, batch_id: str) -> Object:
        """Cancel a batch; does nothing if it ends already.

        Raises:
            ApiError: 400 if it has ended.
        """

        def edit(record: Object) -> Object:
            if record["status"] in ENDED:
                told = f"The batch '{batch_id}' has ended: its status is {record['status']}."
                raise ApiError(400, told, code="batch_ended")
            ending = record["status"] in ("cancelling", "finalizing")
            return record if ending else with_status(record, "cancelling")

        record = self._batches.change(owner, batch_id, edit)
        if record["status"] == "cancelling":
            self.withdraw((owner, batch_id))
            self._elsewhere.cancel((owner, batch_id), record)
        return record

    def withdraw(self, key: Key) -> None:
        """Stop work on a batch that is cancelled, if this server does any."""
        with self._changed:
            batch = self._open.get(key)
            if batch is not None:
                batch.stopped = batch.stopped or "cancelled"
            self._changed.notify_all()

    # What the threads do.

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            batch, step = job
            try:
                step(batch)
            except NoSuchObjectError:  # it was deleted
                self._forget(batch)
            except TakenOverError:
                _log.warning("batches: another server has taken over %s", batch.id)
                self._forget(batch)
            except StoreError as e:
                _log.error("batches: %s", e)
                batch.pending = None  # looked up again
                time.sleep(1)
            except Exception as e:
                _log.exception("batches: unexpected error")
                self._fail(batch, [{"code": "server_error", "message": type(e).__name__}])
            finally:
                with self._changed:
                    batch.active -= 1
                    batch.alone = False
                    self._changed.notify_all()

    def _next_job(self) -> tuple[OpenBatch, Callable[[OpenBatch], None]] | None:
        """Return the next thing to do; None if this thread is not needed any more."""
        with self._changed:
            while self._open and self._lifecycle.phase <= Phase.READY:
                if self._lifecycle.phase == Phase.READY:
                    for batch in self._in_turn():
                        step = self._step_of(batch)
                        if step is not None:
                            batch.active += 1
                            batch.turn = self._turns = self._turns + 1
                            return batch, step
                self._changed.wait(_POLL_SECONDS)
            self._threads -= 1
            return None

    def _in_turn(self) -> list[OpenBatch]:
        """Return the batches, first those of owners with the fewest threads, then with the oldest turn."""
        active: Counter[str] = Counter()
        latest: Counter[str] = Counter()
        for batch in self._open.values():
            active[batch.owner] += batch.active
            latest[batch.owner] = max(latest[batch.owner], batch.turn)
        return sorted(self._open.values(), key=lambda b: (active[b.owner], latest[b.owner]))

    def _step_of(self, batch: OpenBatch) -> Callable[[OpenBatch], None] | None:
        """Return the step that a free thread can do for a batch."""
        if batch.alone:
            return None
        if time.time() >= batch.expires:
            batch.stopped = batch.stopped or "expired"
        if batch.pending is not None and not (batch.stopped or batch.exhausted):
            return self._answer_next
        if batch.active:
            return None
        batch.alone = True
        return self._prepare if batch.pending is None else self._finish

    def _prepare(self, batch: OpenBatch) -> None:
        """Read the input file of a new batch, and looks up which requests have no result."""
        record = self._batches.get(batch.owner, batch.id)
        if self._elsewhere.has(record):
            raise TakenOverError
        if record["status"] == "validating":
            try:
                self._read_input(batch, record)
            except InvalidInputError as e:
                self._requests.delete_all(batch.owner, parent=batch.id)
                self._fail(batch, e.errors)
                return
        elif record["status"] == "cancelling":  # perhaps before this server had begun it
            batch.stopped = batch.stopped or "cancelled"
        elif record["status"] == "finalizing":
            batch.exhausted = True
        find = partial(all_of, self._requests, batch.owner, batch.id)
        counts = count_results(find())
        with self._changed:
            batch.counts = counts
        self._share_counts(batch)
        batch.pending = find(keep=lambda request: request["result"] is None)

    def _read_input(self, batch: OpenBatch, record: Object) -> None:
        self._count_reading(batch)
        # Those that were stored before the server was stopped.
        self._requests.delete_all(batch.owner, parent=batch.id)
        try:
            file = self._app.store.files.open(batch.owner, record["input_file_id"])
        except NoSuchObjectError:
            told = "the input file was deleted"
            raise InvalidInputError([{"code": "no_such_file", "message": told}]) from None
        most = self._app.settings.max_body_bytes
        with file:
            found = read_requests(file, record["endpoint"], most, partial(self._large, batch))
            for some in _groups(found):
                self._requests.create_all(batch.owner, some, parent=batch.id)

        def begin(record: Object) -> Object:
            cancelled = record["status"] != "validating"
            return record if cancelled else with_status(record, "in_progress")

        self._change(batch, begin)

    def _count_reading(self, batch: OpenBatch) -> None:
        """Store that this server begins to read the batch's input file.

        Raises:
            InvalidInputError: Too many servers have been stopped while they read it.
        """
        if batch.counted:
            return

        def count(record: Object) -> Object:
            return {**record, "starts": record.get("starts", 0) + 1}

        if self._change(batch, count)["starts"] > MOST_STARTS:
            told = (
                f"The server was stopped {MOST_STARTS} times while it read the input file: send the "
                "requests in several files"
            )
            raise InvalidInputError([{"code": "server_error", "message": told}])
        batch.counted = True

    @contextlib.contextmanager
    def _large(self, batch: OpenBatch) -> Iterator[None]:
        """Hold the turn of large requests; wait for as long as others have filled the queue."""
        with acting_for(batch.owner):
            while True:
                try:
                    leave = self._app.large_requests.enter()
                    break
                except CapacityError:
                    with self._changed:
                        self._changed.wait(_POLL_SECONDS)
        try:
            yield
        finally:
            leave()

    def _answer_next(self, batch: OpenBatch) -> None:
        request = batch.take()
        if request is None:
            return
        with self._lifecycle.work():
            result = self._answered(batch, request)
        if result is None:
            return
        self._requests.change(batch.owner, request["id"], lambda r: {**r, "result": result})
        with self._changed:
            batch.counts["succeeded" if succeeded(result) else "errored"] += 1
        self._share_counts(batch)

    def _share_counts(self, batch: OpenBatch) -> None:
        """Store the counts if other servers may be asked for them."""
        if self._elsewhere.mark:
            self._change(batch, lambda record: {**record, "counts": dict(batch.counts)})

    def _answered(self, batch: OpenBatch, request: Object) -> Object | None:
        """Return the result of a request; None if it is not wanted now."""

        def withdrawn() -> bool:
            if time.time() >= batch.expires:
                batch.stopped = batch.stopped or "expired"
            return batch.stopped is not None or self._lifecycle.stopping

        if request["starts"] >= MOST_STARTS:
            told = f"The server was stopped {MOST_STARTS} times while it answered this."
            return refuse_request(self._app, batch.owner, request["path"], ApiError(500, told))
        self._requests.change(
            batch.owner, request["id"], lambda r: {**r, "starts": r["starts"] + 1}
        )
        for delay in (*_RETRY_SECONDS, 0):
            result, busy = answer_request(
                self._app, batch.owner, request["path"], body_of(request), withdrawn
            )
            ready = self._lifecycle.phase == Phase.READY
            if withdrawn() or (not ready and not succeeded(result)):
                return None
            if not busy or not delay:
                return result
            with self._changed:
                unwanted = lambda: withdrawn() or self._lifecycle.phase != Phase.READY  # noqa: E731
                if self._changed.wait_for(unwanted, delay):
                    return None
        return None

    def _finish(self, batch: OpenBatch) -> None:
        """End a batch: writes its files, if its API has any."""

        def finalize(record: Object) -> Object:
            if record["status"] == "finalizing":  # begun by an earlier process
                return record
            ids = {name: new_id("file-") for name in ("output", "error")}
            ending = batch.stopped or "completed"
            return with_status(record, "finalizing", ending=ending, reserved=ids)

        record = self._change(batch, finalize)
        ending = record["ending"]
        requests = partial(all_of, self._requests, batch.owner, batch.id)
        counts = dict(count_results(requests()))
        made: dict[str, str | None] = {}
        if record["kind"] == "openai":
            try:
                made = write_results(
                    self._app.store.files,
                    batch.owner,
                    record,
                    requests,
                    _EXPIRED if ending == "expired" else None,
                )
            except TooLargeError as e:
                told = f"The results can't be stored: {e}."
                self._fail(batch, [{"code": "too_large", "message": told}])
                return
        self._change(batch, lambda r: with_status(r, ending, counts=counts, **made))
        self._forget(batch)
        if record["kind"] == "openai":
            self._requests.delete_all(batch.owner, parent=batch.id)

    def _fail(self, batch: OpenBatch, errors: list[Object]) -> None:
        self._forget(batch)
        counts = dict(batch.counts)
        # If the store fails too, the next process goes on with the batch.
        with contextlib.suppress(NoSuchObjectError, TakenOverError, StoreError):
            self._change(batch, lambda r: with_status(r, "failed", errors=errors, counts=counts))

    def _change(self, batch: OpenBatch, edit: Callable[[Object], Object]) -> Object:
        """Change what is stored of a batch, unless another server has taken it over."""

        def checked(record: Object) -> Object:
            if self._elsewhere.has(record):
                raise TakenOverError
            return edit(record)

        return self._batches.change(batch.owner, batch.id, checked)

    def _forget(self, batch: OpenBatch) -> None:
        with self._changed:
            if self._open.get((batch.owner, batch.id)) is batch:
                del self._open[batch.owner, batch.id]


def _groups(requests: Iterator[Object]) -> Iterator[list[Object]]:
    """Yield requests in groups that are stored together."""
    group: list[Object] = []
    size = 0
    for request in requests:
        group.append(request)
        size += len(request["body"])
        if len(group) >= _GROUP or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
