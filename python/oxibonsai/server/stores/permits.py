"""Limits concurrent writes, and the time that threads wait for them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from oxibonsai.server.stores.errors import StoreError

# Short enough that readiness probes are answered within 5 s.
PATIENCE_SECONDS = 3.0


class Permits:
    """Limits the writes of a process, so that a store that hangs does not block all its threads.

    Args:
        count: Number of concurrent writes.
        name: Name of the store, for error messages.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._changed = threading.Condition()
        self._begun: dict[object, float] = {}  # monotonic seconds, the oldest first

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a permit and hold it.

        Raises:
            StoreError: The current writes have taken longer than ``PATIENCE_SECONDS``.
        """
        me = object()
        with self._changed:
            while len(self._begun) >= self._count:
                rest = next(iter(self._begun.values())) + PATIENCE_SECONDS - time.monotonic()
                if rest <= 0:
                    raise StoreError(
                        f"the store {self._name} can't be used now: another write has waited for "
                        f"more than {PATIENCE_SECONDS:g} s"
                    )
                self._changed.wait(rest)
            self._begun[me] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._begun[me]
                self._changed.notify()
