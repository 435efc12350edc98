"""Work that was lost for reasons of the machine before anything of it was sent: done again, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flask import Flask, Response, current_app, g, has_request_context, request
from prometheus_client import CollectorRegistry, Counter

from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import HAND_OVER, IS_REPEAT

_View = TypeVar("_View", bound=Callable[..., Any])


class LostWorkError(ApiError):
    """Raised where what computes an answer has failed, and the request itself is not to blame."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message, code="work_lost")
        if has_request_context():
            g.work_is_lost = True


def repeatable(view: _View) -> _View:
    """Mark a view that changes nothing before its answer is complete, so that it may run twice."""
    view.is_repeatable = True  # type: ignore[attr-defined]
    return view


def may_repeat() -> bool:
    """Return whether the current request may be done twice."""
    view = current_app.view_functions.get(request.endpoint or "")
    return getattr(view, "is_repeatable", False)


def hand_over(environ: Mapping[str, Any]) -> bool:
    """Hand a request over to the next worker; return whether that will answer it."""
    call: Callable[[], bool] | None = environ.get(HAND_OVER)
    return call is not None and call()


def register_repeats(app: Flask, registry: CollectorRegistry) -> None:
    """Hand requests over whose work was lost, and count those that were handed over.

    Args:
        app: The application.
        registry: Of the server's metrics.
    """
    repeated = Counter(
        "oxibonsai_requests_repeated",
        "Requests done again since the worker before this one failed before it had answered.",
        registry=registry,
    )

    def count() -> None:
        if request.environ.get(IS_REPEAT):
            repeated.inc()

    def look(response: Response) -> Response:
        # A stream looks for itself: it may have begun.
        if g.get("work_is_lost") and not response.is_streamed and may_repeat():
            hand_over(request.environ)
        return response

    app.before_request(count)
    app.after_request(look)
