"""Answers one request of a batch through the routes of the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from werkzeug.test import EnvironBuilder

from oxibonsai.server.access import ACTING_FOR
from oxibonsai.server.http.disconnect import WITHDRAWN
from oxibonsai.server.server import Server
from oxibonsai.server.stores import Object


def answer_request(
    app: Server, owner: str, path: str, body: Mapping[str, Any], withdrawn: Callable[[], bool]
) -> tuple[Object, bool]:
    """The result of a request, and whether it may succeed later since the server is only busy.

    Args:
        app: The application.
        owner: The owner of the batch.
        path: The route.
        body: The request's JSON object; not one that asks for a stream.
        withdrawn: Whether the answer is not wanted any more; the work then ends early.
    """
    environ = EnvironBuilder(path=path, method="POST", json=body).get_environ()
    environ[ACTING_FOR] = owner
    environ[WITHDRAWN] = withdrawn
    with app.request_context(environ):
        response = app.full_dispatch_request()
        try:
            answer = response.get_json()
        finally:
            response.close()
    result = {
        "status": response.status_code,
        "request_id": response.headers["X-Request-Id"],
        "body": answer,
    }
    return result, "Retry-After" in response.headers


def refusal_in_a_batch(body: Mapping[str, Any]) -> str | None:
    """Why a request can't be part of a batch; None if it can."""
    for field in ("stream", "background"):
        if body.get(field):
            return f"{field} is not available in a batch: leave it out"
    return None
