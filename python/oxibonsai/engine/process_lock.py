"""A lock that knows which process it is in."""

from __future__ import annotations

import os
import threading

from oxibonsai.errors import RequestError


class ProcessLock:
    """A reentrant lock that refuses forked children: they lack the threads and would wait for ever."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()

    def check_process(self) -> None:
        """Raise RequestError in a fork of the process that made the lock."""
        if os.getpid() != self._process:
            raise RequestError(
                f"this engine belongs to process {self._process}, and its threads are not in process "
                f"{os.getpid()}, a fork of it: load the model in each process after the fork, or "
                'use multiprocessing.get_context("spawn")'
            )

    def acquire(self, blocking: bool = True) -> bool:
        """Implement :meth:`threading.RLock.acquire`; does not look at the process."""
        return self._lock.acquire(blocking)

    def release(self) -> None:
        """Implement :meth:`threading.RLock.release`."""
        self._lock.release()

    def __enter__(self) -> None:
        self.check_process()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
