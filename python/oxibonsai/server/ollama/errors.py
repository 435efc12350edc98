"""Error responses in Ollama's format: ``{"error": message}``."""

from __future__ import annotations

from flask import Response, jsonify

from oxibonsai.server.errors import as_api_error, error_response
from oxibonsai.server.sse import compact


def ollama_error(error: Exception) -> Response:
    """Return the HTTP response for an error: the usual status and headers with Ollama's body."""
    response = error_response(error)
    if response.status_code >= 400:
        response.set_data(jsonify(error=str(as_api_error(error))).get_data())
    return response


def error_line(error: Exception) -> str:
    """Return the line that ends a failed stream."""
    return compact({"error": str(as_api_error(error))}) + "\n"
