"""Server-sent events: framing, headers, pings while there is no output, and the end of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any

from flask import Response, request

from oxibonsai.server.errors import ApiError, as_api_error, error_body
from oxibonsai.server.http.client import ClientGoneError, HandedOverError, client_is_gone
from oxibonsai.server.http.stream_writer import OutputEvent, writable_socket
from oxibonsai.server.lost_work import LostWorkError, hand_over, may_repeat

# Keeps proxies from closing an idle stream.
PING_SECONDS = 1.0
PING = ": ping\n\n"
DONE = "data: [DONE]\n\n"


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def quoted(text: str) -> str:
    """Return a JSON string; much faster than ``json.dumps``."""
    return encode_basestring(text)


def frame(data: Any, event: str | None = None) -> str:
    """Return one event; ``data`` becomes one line of JSON."""
    text = compact(data)
    return f"event: {event}\ndata: {text}\n\n" if event else f"data: {text}\n\n"


def chunk_heads(head: dict[str, Any], *, counts: bool) -> tuple[str, str]:
    """Return the start of OpenAI's chunks, up to their choices, and of the last chunk with the usage.

    Args:
        head: The members before ``choices``.
        counts: Whether the last chunk has the usage; the other chunks then have ``"usage": null``.
    """
    start = f"data: {compact(head)[:-1]},"
    last = f'{start}"choices":['
    return (f'{start}"usage":null,"choices":[' if counts else last), last


def stream_response(
    frames: Iterator[str | None],
    *,
    close: Callable[[], None],
    stopping: Callable[[], bool],
    ping_seconds: float = PING_SECONDS,
    ping: str = PING,
    on_error: Callable[[Exception], str] | None = None,
    output_event: OutputEvent | None = None,
    mimetype: str = "text/event-stream",
) -> Response:
    """Return a response that streams an iterator, from the request's thread or the engine's.

    Args:
        frames: Text to write; None when there was no output for a while, so that the connection is
            checked. An exception becomes an ``error`` event and ends the stream.
        close: Called at the end in any case.
        stopping: Whether the server is shutting down; the stream then ends with an error event.
        ping_seconds: ``ping`` is written after so many seconds without output.
        ping: A comment, unless the API has an event for it.
        on_error: Formats the error event that ends a failed stream; None: in OpenAI's format.
        output_event: Set when ``frames`` has new output. While the client keeps up, the engine's
            thread iterates over ``frames`` and writes them, so iterating must not be slow.
        mimetype: Of the stream.
    """
    environ = request.environ
    repeats = may_repeat()

    def items() -> Iterator[str | None]:
        sock = None if output_event is None else writable_socket(environ)
        begun = False  # whether the response header has been sent
        for item in frames:
            yield item
            begun = begun or bool(item)
            if begun and sock is not None and output_event is not None and output_event.was_set:
                output_event.hand_over(sock, frames, stopping)

    def body() -> Iterator[str]:
        quiet_since = time.monotonic()
        sent = False
        try:
            for item in items():
                if stopping():
                    raise _stopped()
                if item is None:
                    if client_is_gone(environ):
                        return
                    if time.monotonic() - quiet_since < ping_seconds:
                        continue
                    item = ping
                sent = True
                yield item
                quiet_since = time.monotonic()
        except (ClientGoneError, TimeoutError):
            raise  # no client to send an error to
        except Exception as e:
            if isinstance(e, LostWorkError) and repeats and not sent and hand_over(environ):
                raise HandedOverError from e
            yield on_error(e) if on_error else frame(error_body(as_api_error(e)), "error")
        finally:
            close()

    response = Response(body(), mimetype=mimetype)
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"
    # The generator's finally block does not run if it was never started.
    response.call_on_close(close)
    return response


def _stopped() -> ApiError:
    return ApiError(503, "The server was stopped before the response was complete.", code="stopped")
