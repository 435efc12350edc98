"""Answers one request of a batch through the routes of the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import Response
from werkzeug.test import EnvironBuilder

from oxibonsai.server.access import ACTING_FOR
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import CLIENT_IS_GONE
from oxibonsai.server.server import Server
from oxibonsai.server.stores import Object

# A server is busy for less; a budget of tokens is used up for longer.
_MOST_BUSY_SECONDS = 60


def answer_request(
    app: Server, owner: str, path: str, body: str, withdrawn: Callable[[], bool]
) -> tuple[Object, bool]:
    """Return the result of a request, and whether it may succeed later since the server is only busy.

    Args:
        app: The application.
        owner: The owner of the batch.
        path: The route.
        body: The request's JSON; not one that asks for a stream.
        withdrawn: Whether the answer is not wanted any more; the work then ends early.
    """
    environ = {**_environ(owner, path, body), CLIENT_IS_GONE: withdrawn}
    with app.request_context(environ):
        response = app.full_dispatch_request()
        wait = response.headers.get("Retry-After", type=int)
        return _result(response), wait is not None and wait <= _MOST_BUSY_SECONDS


def refuse_request(app: Server, owner: str, path: str, error: ApiError) -> Object:
    """Return the result of a request that is not answered, in the format of its API."""
    with app.request_context(_environ(owner, path, "{}")):
        return _result(app.make_response(app.handle_user_exception(error)))


def _environ(owner: str, path: str, body: str) -> dict[str, Any]:
    environ = EnvironBuilder(
        path=path, method="POST", data=body.encode(), content_type="application/json"
    ).get_environ()
    return {**environ, ACTING_FOR: owner}


def _result(response: Response) -> Object:
    try:
        answer = response.get_json()
    finally:
        response.close()
    request_id = response.headers.get("X-Request-Id")
    return {"status": response.status_code, "request_id": request_id, "body": answer}


def refusal_in_a_batch(body: Mapping[str, Any]) -> str | None:
    """Return why a request can't be part of a batch; None if it can."""
    for field in ("stream", "background"):
        if body.get(field):
            return f"{field} is not available in a batch: leave it out"
    return None
