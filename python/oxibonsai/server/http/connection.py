"""Connections of gunicorn's worker: waiting for the next request, closed, or past their deadline."""

from __future__ import annotations

from oxibonsai.files.platform import HAS_FORK

assert HAS_FORK

import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from gunicorn.workers.gthread import TConn

from oxibonsai.server.http.client import MAX_HEADER_BYTES

# Bodies up to this size are received by the event loop, so that a slow one blocks no thread.
MAX_COLLECTED_BYTES = 256 * 1024
# The minimum transfer rate of a body.
_BYTES_PER_SECOND = 32 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*(?=\r\n)", re.IGNORECASE)
_PROBE = re.compile(rb"GET /(?:(?:v1/)?health|livez|readyz)[? ]")
_KEY = re.compile(rb"\r\n(authorization|x-api-key):([^\r\n]*)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """Buffers the bytes received so far, with a deadline for the rest.

    Attributes:
        received: The bytes received so far.
        deadline: When the request times out, in seconds of ``time.monotonic``.
        is_probe: Whether it is a health probe without a body.
        credentials: The header fields that may hold an API key.
        sharer: Whose share of the threads the request uses; set by the worker.
        is_repeat: Whether the worker before this one lost the request.
        whole: All bytes of the request that is handled; None if they are too many, or not known.
        handed_over: Whether it belongs to the next worker.

    The header is only inspected to decide *when* a thread takes over; gunicorn's parser reads the
    request from its first byte.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Else handle() of gunicorn's worker would wait for it in a thread.
        self.data_ready = True
        self.deadline = 0.0
        self.whole: bytes | None = None
        self.handed_over = False
        self.wait_for_request(0.0)

    def wait_for_request(self, seconds: float, received: bytes = b"") -> None:
        """Reset the buffer: the next request must arrive within ``seconds``."""
        self.received = bytearray(received)
        self._needed: int | None = None
        self._collects_all = False
        self.is_repeat = False
        self.is_probe = False
        self.credentials: dict[str, str] = {}
        self.sharer = ""
        self.deadline = time.monotonic() + seconds

    @property
    def header_is_too_long(self) -> bool:
        """Whether the header is larger than the limit and still incomplete."""
        return self._needed is None and len(self.received) > MAX_HEADER_BYTES

    def add(self, data: bytes, max_body: int) -> bool:
        """Buffer data; return True once a thread can handle the request without waiting for it."""
        searched = max(0, len(self.received) - 3)
        self.received += data
        if self._needed is None:
            end = self.received.find(b"\r\n\r\n", searched)
            if end < 0:
                return False
            self._needed = end + 4 + self._look_at_header(end + 2, max_body)
            self.deadline += (self._needed - end) / _BYTES_PER_SECOND
        return len(self.received) >= self._needed

    def take_received(self) -> bytes:
        """Return the bytes received so far, for the parser, and forget them."""
        received = bytes(self.received)
        self.received.clear()
        # Bytes of a further request would be lost with this one's worker.
        is_whole = self._collects_all and len(received) == self._needed
        self.whole = received if is_whole else None
        return received

    def _look_at_header(self, end: int, max_body: int) -> int:
        """Return how many bytes of the body to buffer; set what the header tells."""
        header = bytes(self.received[:end])
        for name, value in _KEY.findall(header):
            self.credentials[name.decode().title()] = value.decode("latin-1").strip()
        length, chunked = _LENGTH.search(header), _CHUNKED.search(header)
        self.is_probe = not (length or chunked) and _PROBE.match(header) is not None
        if length is None or chunked:
            return 0
        size = int(length[1])
        self._collects_all = size <= min(max_body, MAX_COLLECTED_BYTES)
        # Too large: rejected without reading the body.
        return 0 if size > max_body else min(size, MAX_COLLECTED_BYTES)


def body_seconds(read_timeout: float, size: int | None) -> float:
    """Time limit in seconds for a body of ``size`` bytes (None: unknown size)."""
    return read_timeout + (size or 0) / _BYTES_PER_SECOND


# Linux reports a closed connection even if unread bytes precede the end; other systems don't.
_LEFT = getattr(select, "POLLRDHUP", 0)


def is_closed(sock: socket.socket) -> bool:
    """Return whether the client has closed its end of a connection."""
    try:
        poller = select.poll()
        poller.register(sock, select.POLLIN | _LEFT)
        events = poller.poll(0)
        if not events:
            return False
        if events[0][1] & (_LEFT | select.POLLHUP | select.POLLERR):
            return True
        # The socket may have a timeout, with which a plain recv() would wait.
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except (OSError, ValueError):
        return True


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
        """Limit the time in which the block may read from ``sock``.

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
