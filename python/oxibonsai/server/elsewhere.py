"""Background work of the other servers that share the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from oxibonsai.server.stores import Object
from oxibonsai.server.stores.peers import Key, Peers

# Between two looks at an object that another server works on.
_LOOK_SECONDS = 0.25


class Elsewhere:
    """Work of another server, as the stored objects say.

    Args:
        peers: This server among the others; None if it shares nothing.
    """

    def __init__(self, peers: Peers | None) -> None:
        self._peers = peers

    @property
    def mark(self) -> Object:
        """Return the members of the objects that this server works on."""
        return {} if self._peers is None else {"server": self._peers.number}

    def has(self, stored: Object) -> bool:
        """Return whether an unfinished object is another server's work."""
        return self._server(stored) is not None

    def cancel(self, key: Key, stored: Object) -> bool:
        """Ask the server that works on an object to cancel that; return whether there is one.

        Raises:
            StoreError: The database can't be used.
        """
        server = self._server(stored)
        if self._peers is None or server is None:
            return False
        self._peers.ask_to_cancel(server, key)
        return True

    def _server(self, stored: Object) -> int | None:
        number: Any = stored.get("server")
        if self._peers is None or number in (None, self._peers.number):
            return None
        return int(number)


def looks(ended: Callable[[], bool]) -> Iterator[None]:
    """Yield between looks at an object until it has ended."""
    while not ended():
        time.sleep(_LOOK_SECONDS)
        yield


def wait_until_ended(ended: Callable[[], bool], seconds: float) -> None:
    """Wait for the end of another server's work on an object, at most ``seconds``."""
    deadline = time.monotonic() + seconds
    for _ in looks(ended):
        if time.monotonic() >= deadline:
            return
