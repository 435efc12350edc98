"""Tracks whether the store is writable; after a failed write, probes until writes work again."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from oxibonsai.server.stores.errors import StoreError

_log = logging.getLogger("oxibonsai.server")

_EVERY_SECONDS = 5.0


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
        while not self._closed.wait(_EVERY_SECONDS):
            with contextlib.suppress(StoreError):
                self._probe()
                break
        else:
            return
        with self._lock:
            self._failing = False
        _log.info("the store is writable again")
