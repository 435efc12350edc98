"""A loaded model, and the requests that use it."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from oxibonsai.server.backend import Backend
from oxibonsai.server.settings import Settings

if TYPE_CHECKING:
    from oxibonsai.engine import EnginePool
    from oxibonsai.server.submitter import Submitter

# Size, time and identity of a file: what changes when it is replaced or written.
Stamp = tuple[int, int, int]


class Instance:
    """A loaded model; closed when it is retired and no request uses it any more.

    Args:
        backend: Has loaded, or is about to.
        settings: Of the model.
        make_generations: Makes what submits its requests, when the first of them arrives.
        on_close: Called with its engines when they have been closed.

    Attributes:
        backend: The engines.
        settings: The server's settings with those of the model.
        last_used: When a request last used it, in seconds of ``time.monotonic``.
        stamp: Of the file it was loaded from; None if that can't be watched.
        keep_seconds: It is unloaded when nobody has used it for so long; negative: never.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        make_generations: Callable[[Instance], Submitter],
        on_close: Callable[[EnginePool | None], None],
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.last_used = time.monotonic()
        self.stamp: Stamp | None = None
        self.keep_seconds: float = settings.sleep_idle_seconds
        self._make_generations = make_generations
        self._submitter: Submitter | None = None
        self._on_close = on_close
        self._lock = threading.Lock()
        self._leases = 0
        self._retired = self._closed = False

    @property
    def submitter(self) -> Submitter:
        """Return what submits requests to the engines."""
        with self._lock:
            if self._submitter is None:
                self._submitter = self._make_generations(self)
            return self._submitter

    @property
    def pool(self) -> EnginePool | None:
        """The engines; None before they are loaded."""
        return self.backend.pool

    @property
    def busy(self) -> bool:
        """Whether a request uses it."""
        pool = self.pool
        return self._leases > 0 or (pool is not None and pool.running + pool.waiting > 0)

    @property
    def memory_bytes(self) -> int:
        """Return the most memory it may take in bytes: its weights, and its caches when they are full."""
        pool = self.pool
        if pool is None:
            return 0
        model, store = pool.engines[0].model, pool.engines[0].cache.store
        weights = sum(model.device.packed_nbytes(w) or w.nbytes for w in model.graph.matrices)
        kept = 0 if store is None else store.most_bytes
        return weights + kept + sum(e.cache.budget for e in pool.engines)

    def lease(self, adapter: str = "") -> Lease:
        """Keep the model open until the lease is released; the name had ``:adapter`` at its end."""
        with self._lock:
            self._leases += 1
        self.last_used = time.monotonic()
        return Lease(self, adapter)

    def release(self) -> None:
        """End one lease; for :class:`Lease`."""
        self.last_used = time.monotonic()
        with self._lock:
            self._leases -= 1
        self._close_if_unused()

    def retire(self) -> None:
        """Close the model as soon as no request uses it."""
        self._retired = True
        self._close_if_unused()

    def close(self) -> None:
        """Cancel what runs and end the engines; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._submitter = None
        pool = self.pool
        self.backend.close()
        self._on_close(pool)
        del pool
        free_memory()

    def _close_if_unused(self) -> None:
        if self._retired and self._leases == 0:
            self.close()


class Lease:
    """One use of an instance; a context manager. Releasing is idempotent.

    Attributes:
        instance: The model.
        adapter: Name of the adapter that the request chose with the model's name; empty: none.
    """

    def __init__(self, instance: Instance, adapter: str) -> None:
        self.instance = instance
        self.adapter = adapter
        self._open = True
        self._lock = threading.Lock()

    def release(self) -> None:
        """End the use."""
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self.instance.release()

    def __enter__(self) -> Instance:
        return self.instance

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def free_memory() -> None:
    """Collect what a closed model consisted of, which refers to itself."""
    gc.unfreeze()  # objects of the server's start
    gc.collect()
    gc.freeze()


def stamp_of(path: str | os.PathLike[str]) -> Stamp | None:
    """Return the stamp of a file; None if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
