"""Commands of rank 0 to the other ranks: numbers, never objects."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from oxibonsai.distributed.group import Group, Words
from oxibonsai.errors import DeviceError


class Command(enum.IntEnum):
    """The first word of a command; its arguments follow."""

    STOP = 0  # nothing more will come
    WAIT = 1  # nothing to do yet; all meet
    RUN = 2  # which pass, slots or -1, number of pools, pools, the batch
    MAKE_PAGES = 3  # type of keys and values, pages; the next pool
    COPY_PAGE = 4  # pool, source, target
    RELEASE_PAGE = 5  # pool, page
    MAKE_SLOTS = 6  # slots; the next store
    COPY_SLOT = 7  # store, source, target
    READ_PAGE = 8  # pool, page; each process then sends its part
    WRITE_PAGE = 9  # pool, page; each process is then sent its part
    READ_SLOT = 10  # store, slot; likewise
    WRITE_SLOT = 11  # store, slot; likewise


class Leader:
    """Rank 0's voice: one command at a time, with what belongs to it.

    While there is nothing to do, it says so from time to time, so that each side notices when the
    other one is lost.

    Args:
        group: The processes.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self.on_failure: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to tell the others to wait."""
        self._thread = threading.Thread(
            target=self._keep_alive, name="oxibonsai-group", daemon=True
        )
        self._thread.start()

    @contextmanager
    def command(self, command: Command, words: Sequence[int] | Words = ()) -> Iterator[None]:
        """Send a command; the block does rank 0's part of it before another one is sent."""
        with self._lock:
            sent = np.concatenate([np.array([command], np.int32), np.asarray(words, np.int32)])
            self._group.send_plan(sent)
            with self._group.shared_work():
                yield

    def stop(self) -> None:
        """Send the others away."""
        self._ended.set()
        self.wake()
        if self._group.failure is None and self._group.rank == 0:
            with self.command(Command.STOP):
                pass
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """Notice at once that the group has failed."""
        self._woken.set()

    def _keep_alive(self) -> None:
        while not self._ended.is_set():
            self._woken.wait(self._group.timeout / 4)
            try:
                with self._lock:
                    if self._ended.is_set():
                        return
                    with self.command(Command.WAIT):
                        self._group.meet()
            except DeviceError:
                self.on_failure()
                return
