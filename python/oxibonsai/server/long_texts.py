"""Long texts of requests are parsed and tokenized by one thread at a time.

Both need the interpreter's lock nearly all the time. A hundred threads that do so at once leave the
others, the event loop among them, a hundredth of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flask import current_app, has_request_context, request

from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server.http.disconnect import ClientGoneError, client_is_gone

# Shorter ones take some milliseconds.
_LONG = 16 * 1024


@contextmanager
def turn_of_long_text(length: int) -> Iterator[None]:
    """Hold the turn of long texts while the current request, if there is one, reads a text.

    Args:
        length: The length of the text, in bytes or characters.

    Raises:
        CapacityError: Too many wait.
        ClientGoneError: The client disconnected.
    """
    if length <= _LONG or not has_request_context():
        yield
        return
    # The application imports what imports this module.
    queue: SerialQueue = current_app.long_texts  # type: ignore[attr-defined]
    with queue.turn(_look):
        yield


def _look() -> None:
    if client_is_gone(request.environ):
        raise ClientGoneError("the client closed its connection")
