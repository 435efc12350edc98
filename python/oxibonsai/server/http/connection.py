"""A client's connection while the worker's loop collects its next request."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from gunicorn.workers.gthread import TConn

from oxibonsai.server.error_types import error_type

# A header section beyond this is refused unread; gunicorn's own limits are per line and field.
MAX_HEADER_BYTES = 64 * 1024
# Bodies up to this are collected by the loop, so that a slow one holds no thread.
MAX_COLLECTED_BYTES = 256 * 1024
# A body must come at least so fast; a mobile line does.
_BYTES_PER_SECOND = 32 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*(?=\r\n)", re.IGNORECASE)
_PROBE = re.compile(rb"GET /(?:(?:v1/)?health|livez|readyz)[? ]")
_CHUNKED = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """Adds the bytes that have come so far, and until when the rest must come.

    Attributes:
        received: The bytes.
        deadline: When the request is too late, in seconds of ``time.monotonic``.
        is_probe: Whether it asks how the server is, and brings no body that a thread may wait for.

    The look at the header here only decides *when* a thread takes over; what the request means is
    decided by gunicorn's parser alone, from the first byte on.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # What handle() of gunicorn's worker would else wait for with a thread.
        self.data_ready = True
        self.deadline = 0.0
        self.wait_for_request(0.0)

    def wait_for_request(self, seconds: float, received: bytes = b"") -> None:
        """Begins anew: a request must come within so many seconds."""
        self.received = bytearray(received)
        self._needed: int | None = None
        self.is_probe = False
        self.deadline = time.monotonic() + seconds

    @property
    def header_is_too_long(self) -> bool:
        """No end of the header in sight."""
        return self._needed is None and len(self.received) > MAX_HEADER_BYTES

    def add(self, data: bytes, max_body: int) -> bool:
        """Takes what came; True once a thread can go on without waiting for the client."""
        searched = max(0, len(self.received) - 3)
        self.received += data
        if self._needed is None:
            end = self.received.find(b"\r\n\r\n", searched)
            if end < 0:
                return False
            self._needed = end + 4 + self._look_at_header(end + 2, max_body)
            self.deadline += (self._needed - end) / _BYTES_PER_SECOND
        return len(self.received) >= self._needed

    def _look_at_header(self, end: int, max_body: int) -> int:
        """How many bytes of the body to collect; tells a probe."""
        header = bytes(self.received[:end])
        length, chunked = _LENGTH.search(header), _CHUNKED.search(header)
        self.is_probe = not (length or chunked) and _PROBE.match(header) is not None
        if length is None or chunked:
            return 0
        size = int(length[1])
        # Too large: answered without its body.
        return 0 if size > max_body else min(size, MAX_COLLECTED_BYTES)


def body_seconds(read_timeout: float, size: int | None) -> float:
    """Time for a body of ``size`` bytes, or of one that does not say its size."""
    return read_timeout + (size or 0) / _BYTES_PER_SECOND


def plain_error(status: int, reason: str, message: str) -> bytes:
    """A whole HTTP answer for what never reaches the application; closes the connection."""
    error = {"message": message, "type": error_type(status), "param": None, "code": None}
    body = json.dumps({"error": error}).encode()
    head = (
        f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body
