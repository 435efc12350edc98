"""Shuts down sockets whose deadline has passed, whatever their thread is waiting for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

_TICK_SECONDS = 0.5


class SocketReaper:
    """One thread that shuts down every watched socket past its deadline.

    A socket's timeout restarts with each byte, so a client that sends one byte a second would block
    its thread for ever; a deadline does not restart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}
        self._cut: set[socket.socket] = set()

    def start(self) -> None:
        """Start the thread; call it after the fork."""
        threading.Thread(target=self._run, name="socket-reaper", daemon=True).start()

    @contextlib.contextmanager
    def watch(self, sock: socket.socket, seconds: float) -> Iterator[None]:
        """Limits the time in which the block may read from ``sock``.

        Raises:
            TimeoutError: The deadline passed before the block ended.
        """
        with self._lock:
            self._deadlines[sock] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                self._deadlines.pop(sock, None)
                late = sock in self._cut
                self._cut.discard(sock)
            if late:
                raise TimeoutError("the client sent its request too slowly")

    def _run(self) -> None:
        while True:
            time.sleep(_TICK_SECONDS)
            now = time.monotonic()
            with self._lock:
                late = [s for s, deadline in self._deadlines.items() if deadline <= now]
                for sock in late:
                    del self._deadlines[sock]
                    self._cut.add(sock)
                    # Reading only: an error response can still be sent.
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RD)
