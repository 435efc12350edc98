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
    """Return the HTTP response for an error: the usual status and headers with Anthropic's body."""
    response = error_response(error)
    response.set_data(json.dumps(anthropic_error_body(error, g.get("request_id"))))
    return response


def error_event(error: Exception) -> str:
    """Return the error event that ends a failed stream."""
    return frame(anthropic_error_body(error, g.get("request_id")), "error")


def anthropic_error_body(error: Exception, request_id: str | None) -> dict[str, Any]:
    """Return the body of an error response."""
    told = as_api_error(error)
    kind = "api_error" if told.status >= 500 else "invalid_request_error"
    return {
        "type": "error",
        "error": {"type": _TYPES.get(told.status, kind), "message": str(told)},
        "request_id": request_id,
    }
