"""Detects that a client has disconnected while its request is processed."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")

# Linux reports a closed connection even if unread bytes precede the end; other systems don't.
_LEFT = getattr(select, "POLLRDHUP", 0)
# Key of a WSGI environment: a function that says whether the client is gone, where no socket tells.
CLIENT_IS_GONE = "oxibonsai.client_is_gone"
# How often connections are checked, and thus how late a disconnect is detected.
POLL_SECONDS = 0.25


class ClientGoneError(ConnectionError):
    """The client has closed its connection."""


def client_is_gone(environ: Mapping[str, Any]) -> bool:
    """Whether the client of a request closed its connection; False if that is unknown."""
    if (told := environ.get(CLIENT_IS_GONE)) is not None:
        return bool(told())
    sock = environ.get("gunicorn.socket")
    if not isinstance(sock, socket.socket):
        return False
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
