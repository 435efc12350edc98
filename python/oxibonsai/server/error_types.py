"""OpenAI's error types; used below the application too."""

from __future__ import annotations

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def error_type(status: int) -> str:
    """Return the error type of an HTTP status."""
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
