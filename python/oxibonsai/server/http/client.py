"""Questions to any HTTP server: whether a client has left, what became of its request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from oxibonsai.server.error_types import error_type

_T = TypeVar("_T")

# A larger header section is rejected.
MAX_HEADER_BYTES = 64 * 1024
# Keys of a WSGI environment: a function that says whether the client is gone; a function that hands the
# request over to the worker after this one, and returns whether it did; whether it was handed over before.
CLIENT_IS_GONE = "oxibonsai.client_is_gone"
HAND_OVER = "oxibonsai.hand_over"
IS_REPEAT = "oxibonsai.is_repeat"
# How often connections are checked, and thus how late a disconnect is detected.
POLL_SECONDS = 0.25


class ClientGoneError(ConnectionError):
    """The client has closed its connection."""


class HandedOverError(OSError):
    """The connection belongs to another worker now: nothing may be written to it."""


def client_is_gone(environ: Mapping[str, Any]) -> bool:
    """Return whether the client of a request closed its connection; False if that is unknown."""
    told = environ.get(CLIENT_IS_GONE)
    return told is not None and bool(told())


def watched(items: Iterable[_T], environ: Mapping[str, Any]) -> Iterator[_T]:
    """Yield the items, and check the client's connection between them.

    Raises:
        ClientGoneError: The client disconnected.
    """
    looked = time.monotonic()
    for item in items:
        if time.monotonic() - looked >= POLL_SECONDS:
            if client_is_gone(environ):
                raise ClientGoneError("the client closed its connection")
            looked = time.monotonic()
        yield item


def error_json(status: int, message: str) -> bytes:
    """Return the body of an error response to a request that never reaches the application."""
    error = {"message": message, "type": error_type(status), "param": None, "code": None}
    return json.dumps({"error": error}).encode()


def plain_error(status: int, reason: str, message: str) -> bytes:
    """Return a complete HTTP error response for requests that never reach the application."""
    body = error_json(status, message)
    head = (
        f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body
