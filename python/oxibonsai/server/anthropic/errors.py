"""Error responses in Anthropic's format."""

from __future__ import annotations

import json
from typing import Any

from flask import Response, g

from oxibonsai.server.errors import as_api_error, error_response
from oxibonsai.server.sse import frame

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(error: Exception) -> Response:
    """The HTTP response for an error: the usual status and headers with Anthropic's body."""
    response = error_response(error)
    response.set_data(json.dumps(_body(error, response.status_code)))
    return response


def error_event(error: Exception) -> str:
    """The error event that ends a failed stream."""
    return frame(_body(error, as_api_error(error).status), "error")


def _body(error: Exception, status: int) -> dict[str, Any]:
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    told = {"type": kind, "message": str(as_api_error(error))}
    return {"type": "error", "error": told, "request_id": g.get("request_id")}
