"""The store: everything that the server keeps between requests, and whether it is writable."""

from __future__ import annotations

import contextlib
import io
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import delete, func, select, union_all

from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.stores import tables
from oxibonsai.server.stores.blobs import BlobFolder, Blobs, BlobTable
from oxibonsai.server.stores.collection import Collection, new_id
from oxibonsai.server.stores.counters import StoredBudgets, StoredRateLimits
from oxibonsai.server.stores.database import Database
from oxibonsai.server.stores.errors import StoreError, TooLargeError
from oxibonsai.server.stores.files import FileStore

_log = logging.getLogger("oxibonsai.server")

_PROBE_SECONDS = 5.0


class Faults:
    """Records failed writes, and detects when writes work again.

    Args:
        probe: Writes something; raises a StoreError on failure.
    """

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._failing = False
        self._closed = threading.Event()

    @property
    def failing(self) -> bool:
        """Whether the last known write failed."""
        return self._failing

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Wrap a block that writes."""
        try:
            yield
        except StoreError as e:
            with self._lock:
                begins, self._failing = not self._failing, True
            if begins:
                _log.error("%s", e)
                threading.Thread(target=self._wait, name="store-faults", daemon=True).start()
            raise

    def close(self) -> None:
        """Stop probing."""
        self._closed.set()

    def _wait(self) -> None:
        while not self._closed.wait(_PROBE_SECONDS):
            with contextlib.suppress(StoreError):
                self._probe()
                break
        else:
            return
        with self._lock:
            self._failing = False
        _log.info("the store is writable again")


_PROBE_BYTES = 64 * 1024
_FULL_SECONDS = 3600.0  # more than the clocks of servers differ
_NOBODY = "-"  # never the owner of a request


class Store:
    """The collections, one for each kind of object.

    Args:
        url: URL of the database.
        folder: Folder of file contents, and of uploads that are in progress.
        shared: Keep file contents in the database, for servers that share it.
        max_file_bytes: Size limit of one file.
        max_total_bytes: Size limit of all files of an owner, and of all objects of an owner.

    Raises:
        RequestError, UnsupportedError, FormatError, StoreError: As :class:`Database`.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        shared: bool = False,
        max_file_bytes: int = 512 * 2**20,
        max_total_bytes: int = 8 * 2**30,
    ) -> None:
        self._database = db = Database(url)
        self.responses = Collection(db, tables.responses, "resp_", "response")
        self.assistants = Collection(db, tables.assistants, "asst_", "assistant")
        self.threads = Collection(db, tables.threads, "thread_", "thread")
        self.messages = Collection(db, tables.messages, "msg_", "message")
        self.runs = Collection(db, tables.runs, "run_", "run")
        self.run_steps = Collection(db, tables.run_steps, "step_", "run step")
        self.chat_completions = Collection(
            db, tables.chat_completions, "chatcmpl-", "chat completion"
        )
        self.conversations = Collection(db, tables.conversations, "conv_", "conversation")
        self.conversation_items = Collection(db, tables.conversation_items, "item_", "item")
        self.batches = Collection(db, tables.batches, "batch_", "batch")
        self.batch_requests = Collection(db, tables.batch_requests, "batch_req_", "request")
        self._blobs: Blobs = BlobTable(folder) if shared else BlobFolder(folder)
        self.files = FileStore(db, self._blobs, max_file_bytes, max_total_bytes)
        self._max_total_bytes = max_total_bytes
        self._faults = Faults(self._try_writing)
        db.writing = self._faults.noted

    def rate_limits(self) -> StoredRateLimits:
        """Return the token buckets in the database, which is PostgreSQL."""
        return StoredRateLimits(self._database)

    def budgets(self) -> StoredBudgets:
        """Return what callers have used of their daily budgets."""
        return StoredBudgets(self._database)

    @property
    def failing(self) -> bool:
        """Whether a write has failed and none has succeeded since."""
        return self._faults.failing

    def before_large_objects(self, wait: Callable[[], None]) -> None:
        """Let ``wait`` be called before large objects are read, so that few are in memory."""
        self._database.before_large_objects = wait

    def check_room(self, owner: str) -> None:
        """Check that an owner may store another object; those of running work are not checked.

        Raises:
            TooLargeError: The owner's objects, without the contents of files, have reached the limit.
        """
        sizes = [select(func.sum(t.c.body_size)).where(t.c.owner == owner) for t in tables.OBJECTS]
        with self._database.read() as connection:
            found = connection.execute(union_all(*sizes)).scalars()
            total = sum(int(size or 0) for size in found)
        if total >= self._max_total_bytes:
            raise TooLargeError(
                f"what this API key has stored takes {total} bytes of {self._max_total_bytes} "
                "(--max-files-mb): delete some of it, or send store: false"
            )

    def forget_old(self, older_than_seconds: float) -> int:
        """Delete responses, chat completions and batches older than the given age.

        Returns:
            The number of deleted objects.
        """
        count = 0
        with self._database.write() as connection:
            for table in (tables.responses, tables.chat_completions, tables.batches):
                old = delete(table).where(table.c.created < time.time() - older_than_seconds)
                count += connection.execute(old).rowcount
        return count

    def forget_counters(self) -> None:
        """Delete past days' budgets, and buckets that have long been full, as an unknown owner's is."""
        buckets, budgets, now = tables.rate_limits, tables.token_budgets, time.time()
        with self._database.write() as connection:
            connection.execute(delete(buckets).where(buckets.c.full_at < now - _FULL_SECONDS))
            # The clocks of servers differ by less than a day.
            connection.execute(delete(budgets).where(budgets.c.day < now // 86400 - 1))

    def close(self) -> None:
        """Close the database."""
        self._faults.close()
        self._database.close()

    def _try_writing(self) -> None:
        """Write and delete an object and a file of typical size."""
        body = {"id": new_id("probe_"), "filler": secrets.token_hex(_PROBE_BYTES // 2)}
        with self._database.write_unnoted() as connection:
            self.responses.create_in(connection, _NOBODY, body)
        table = tables.responses
        with self._database.write_unnoted() as connection:
            connection.execute(delete(table).where(table.c.owner == _NOBODY))
        with self._blobs.receive(io.BytesIO(bytes(_PROBE_BYTES)), _PROBE_BYTES):
            pass


_EVERY_SECONDS = 3600.0


def start_housekeeping(store: Store, retention_seconds: float) -> None:
    """Delete old objects and orphaned contents, now and every hour."""

    def run() -> None:
        while True:
            try:
                forgotten = store.forget_old(retention_seconds)
                store.files.sweep()
                store.forget_counters()
            except OxiBonsaiError as e:
                _log.error("housekeeping: %s", e)
            else:
                _log.debug("housekeeping: %d old objects deleted", forgotten)
            time.sleep(_EVERY_SECONDS)

    threading.Thread(target=run, name="housekeeping", daemon=True).start()
