"""Error responses in OpenAI's format: ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from flask import Flask, Response, has_request_context, jsonify, request
from werkzeug.exceptions import HTTPException, NotFound

from oxibonsai.errors import (
    CapacityError,
    OxiBonsaiError,
    RequestError,
    TemplateError,
    UnsupportedError,
)
from oxibonsai.server.error_types import error_type
from oxibonsai.server.http.client import ClientGoneError
from oxibonsai.server.stores.errors import NoSuchObjectError, StoreError, TooLargeError

_log = logging.getLogger("oxibonsai.server")

# Characters of a message and of a field's name: both can quote what a request has sent.
_MOST_MESSAGE, _MOST_PARAM = 2000, 200


class ApiError(OxiBonsaiError):
    """An error response.

    Attributes:
        status: The HTTP status.
        param: The invalid field of the request.
        code: A machine-readable code.
        retry_after: Seconds after which the client may retry.
        extra: Further members of the error object.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(_short(message, _MOST_MESSAGE))
        self.status = status
        self.kind = kind or error_type(status)
        self.param = None if param is None else _short(param, _MOST_PARAM)
        self.code = code
        self.retry_after = retry_after
        self.extra = extra or {}


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."


# Parts of OpenAI's API that are not served, with what to say of them.
_NOT_HERE = {
    "/v1/audio": "neither hears nor speaks: the models that it runs read texts and pictures",
    "/v1/moderations": "moderates nothing: ask a model in a chat completion, or leave the check out",
    "/v1/fine_tuning": "trains no models: see `oxibonsai train`",
    "/v1/realtime": "has no realtime sessions: stream a chat completion",
    "/v1/videos": "makes no videos; /v1/images/generations draws pictures",
    "/v1/vector_stores": "searches no files: put the texts into a message, or use /v1/embeddings",
}


def not_found(kind: str, object_id: str) -> ApiError:
    """Return the same error for unknown ids and for ids of other API keys."""
    return ApiError(404, f"No {kind} found with id '{object_id[:80]}'.", code="not_found")


def error_body(error: ApiError) -> dict[str, Any]:
    """Return the error object, also for the ``error`` event of a stream."""
    body = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
    return {"error": {**body, **error.extra}}


def as_api_error(error: Exception) -> ApiError:
    """Return the error that a client sees for ``error``; details of an unexpected one are only logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        status = error.code or 500
        if isinstance(error, NotFound) and has_request_context():
            told = f"There is no {request.path[:120]!r} here; GET /openapi.json lists all routes."
            for path, what in _NOT_HERE.items():
                if request.path.startswith(path):
                    told = f"This server {what}; GET /openapi.json lists all routes."
            return ApiError(status, told, code="no_such_route")
        return ApiError(status, error.description or error.name)
    if isinstance(error, RequestError):
        return ApiError(400, str(error), param=error.param)
    if isinstance(error, UnsupportedError):
        return ApiError(400, str(error), code="unsupported")
    if isinstance(error, TemplateError):
        told = f"This model takes no conversations: {error}. Send it a plain prompt."
        return ApiError(400, told, code="unsupported")
    if isinstance(error, ClientGoneError):
        # Not sent to anyone; 499 is nginx's status for this case and appears in the log.
        return ApiError(499, "The client disconnected.")
    if isinstance(error, NoSuchObjectError):
        return not_found(error.kind, error.object_id)
    if isinstance(error, TooLargeError):
        return ApiError(413, f"Too large: {error}.", code="too_large")
    if isinstance(error, StoreError):
        _log.error("%s", error)
        return ApiError(503, "The store is not available now.", code="store", retry_after=5)
    if isinstance(error, CapacityError):
        return ApiError(503, str(error), code="over_capacity", retry_after=1)
    _log.error("unexpected error", exc_info=error)
    return ApiError(500, "Internal server error; see the server's log.")


def error_response(error: Exception) -> Response:
    """Return the HTTP response for an error."""
    if isinstance(error, HTTPException) and error.response is not None:
        status = error.response.status_code
        if status < 400:  # a redirect
            return Response(error.get_body(), status, error.get_headers())
    e = as_api_error(error)
    response = jsonify(error_body(e))
    response.status_code = e.status
    if isinstance(error, HTTPException):
        # Allow, Retry-After and the like; the headers of the body are our own.
        for name, value in error.get_headers():
            if name.lower() not in ("content-type", "content-length"):
                response.headers[name] = value
    if e.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, round(e.retry_after + 0.499)))
    if e.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if e.status == 413:
        # The rest of the body has not been read.
        response.headers["Connection"] = "close"
    return response


def register_error_formats(
    app: Flask, formats: Mapping[str, Callable[[Exception], Response]]
) -> None:
    """Format errors under some paths as their API does, 401 and 404 among them.

    Args:
        app: The application.
        formats: What makes the response, by the beginning of the path.
    """

    def answer(error: Exception) -> Response:
        own = next((f for path, f in formats.items() if request.path.startswith(path)), None)
        return (own or error_response)(error)

    app.register_error_handler(Exception, answer)


def register_errors(app: Flask) -> None:
    """Handle every exception of a view with :func:`error_response`."""
    app.register_error_handler(Exception, error_response)
