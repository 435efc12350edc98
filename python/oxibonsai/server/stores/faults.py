"""Whether the store takes writes: one that failed is tried again until it does."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from oxibonsai.server.stores.errors import StoreError

_log = logging.getLogger("oxibonsai.server")

_EVERY_SECONDS = 5.0


class Faults:
    """Notes that a write has failed, and finds out when writes work again.

    Args:
        probe: Writes, and raises a StoreError where that can't be done.
    """

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._failing = False
        self._closed = threading.Event()

    @property
    def failing(self) -> bool:
        """Writes fail, as far as is known."""
        return self._failing

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """A block that writes."""
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
        """Tries no more."""
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
        _log.info("the store can be written again")
