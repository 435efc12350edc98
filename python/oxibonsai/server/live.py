"""Streams of events that are made in the request's own thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from flask import Response, request

from oxibonsai.server.disconnect import client_is_gone
from oxibonsai.server.errors import ApiError, as_api_error, error_body
from oxibonsai.server.sse import PING, PING_SECONDS, frame


def error_frame(error: Exception) -> str:
    """The event that ends a stream which can't go on."""
    return frame(error_body(as_api_error(error)), "error")


def live_stream(
    frames: Iterator[str | None],
    *,
    close: Callable[[], None],
    stopping: Callable[[], bool],
    ping: str = PING,
    on_error: Callable[[Exception], str] = error_frame,
) -> Response:
    """A response that writes frames as they come.

    Args:
        frames: None says that nothing has come for a moment, so that the client can be looked after.
        close: Called at the end in any case, also where the stream never began.
        stopping: Whether the server is about to end; the stream then ends with an error event.
        ping: Written where nothing came for a second.
        on_error: Makes the last event of a stream that fails.
    """
    environ = request.environ

    def body() -> Iterator[str]:
        quiet_since = time.monotonic()
        try:
            for item in frames:
                if stopping():
                    raise ApiError(503, "The server was stopped before the answer was done.")
                if item is None:
                    if client_is_gone(environ):
                        return
                    if time.monotonic() - quiet_since < PING_SECONDS:
                        continue
                yield ping if item is None else item
                quiet_since = time.monotonic()
        except Exception as e:
            yield on_error(e)

    response = Response(body(), mimetype="text/event-stream")
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(close)
    return response
