"""Answers of completions, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from flask import Response, jsonify, request

from oxibonsai.server.generation import Answers, wait_for_all
from oxibonsai.server.http.stream_writer import Bell
from oxibonsai.server.server import Server
from oxibonsai.server.sse import stream_response


class Job(Protocol):
    """Everything that runs for one request.

    Attributes:
        group: The answers, one for each prompt.
    """

    group: list[Answers]

    @property
    def bell(self) -> Bell | None:
        """Of the answers; None where an event may take long to make."""

    def frames(self) -> Iterator[str | None]:
        """The events of a stream."""

    def whole(self) -> Any:
        """The body, once all answers have ended."""

    def close(self) -> None:
        """Cancels what still runs."""


def answer_job(app: Server, job: Job, *, streams: bool) -> Response:
    """Follows a job to its end and closes it, whatever ends it."""
    if streams:
        return stream_response(
            job.frames(),
            close=job.close,
            stopping=lambda: app.lifecycle.stopping,
            bell=job.bell,
        )
    try:
        wait_for_all(job.group, request.environ)
        return jsonify(job.whole())
    finally:
        job.close()
