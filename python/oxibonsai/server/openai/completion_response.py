"""Responses of completion routes, as a whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from flask import Response, jsonify, request

from oxibonsai import __version__
from oxibonsai.server.generation import Generation, wait_for_all
from oxibonsai.server.http.stream_writer import OutputEvent
from oxibonsai.server.server import Server
from oxibonsai.server.sse import stream_response


class CompletionHandler(Protocol):
    """Generates and formats the response to one completion request.

    Attributes:
        group: The generations, one for each prompt.
    """

    group: list[Generation]

    @property
    def output_event(self) -> OutputEvent | None:
        """The event shared by the generations; None if formatting a frame may be slow."""

    def frames(self) -> Iterator[str | None]:
        """Yield the server-sent events of the stream; None when there was no output for a while."""

    def result(self) -> Any:
        """Return the response body, after all generations have ended."""

    def close(self) -> None:
        """Cancel generations that still run."""


def completion_response(app: Server, handler: CompletionHandler, *, streams: bool) -> Response:
    """Respond with a stream or a whole body; the handler is closed in any case."""
    if streams:
        return stream_response(
            handler.frames(),
            close=handler.close,
            stopping=lambda: app.lifecycle.stopping,
            output_event=handler.output_event,
        )
    try:
        wait_for_all(handler.group, request.environ)
        return jsonify(handler.result())
    finally:
        handler.close()


def fingerprint() -> str:
    """Return the fingerprint; it begins with b, as llama-server's build numbers do.

    Requests with a seed have the same result where it is equal: results don't depend on the machine.
    """
    return f"b-oxibonsai-{__version__}"
