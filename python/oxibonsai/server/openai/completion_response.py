"""Answers of completions, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from flask import Response, jsonify, request

from oxibonsai.server.generation import Generation, wait_for_all
from oxibonsai.server.http.stream_writer import OutputEvent
from oxibonsai.server.server import Server
from oxibonsai.server.sse import stream_response


class CompletionHandler(Protocol):
    """Everything that runs for one request.

    Attributes:
        group: The answers, one for each prompt.
    """

    group: list[Generation]

    @property
    def output_event(self) -> OutputEvent | None:
        """Of the answers; None where an event may take long to make."""

    def frames(self) -> Iterator[str | None]:
        """The events of a stream."""

    def result(self) -> Any:
        """The body, once all answers have ended."""

    def close(self) -> None:
        """Cancels what still runs."""


def completion_response(app: Server, handler: CompletionHandler, *, streams: bool) -> Response:
    """Follows a job to its end and closes it, whatever ends it."""
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
