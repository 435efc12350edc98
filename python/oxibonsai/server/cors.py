"""Which web pages may call: none, unless their origin is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flask import Flask, Response, request

_LOCALHOST = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


def register_cors(app: Flask, origins: Sequence[str]) -> None:
    """Tells browsers which pages may read answers.

    Args:
        app: The application.
        origins: ``https://page.example`` and the like; ``localhost`` for pages of this machine on
            any port, ``*`` for all.
    """

    def allowed(origin: str) -> bool:
        if "*" in origins or origin in origins:
            return True
        return "localhost" in origins and _LOCALHOST.fullmatch(origin) is not None

    def end(response: Response) -> Response:
        origin = request.headers.get("Origin")
        if origin is None:
            return response
        response.vary.add("Origin")
        if allowed(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Allow-Credentials"] = "true"
            response.headers["Access-Control-Expose-Headers"] = "X-Request-Id, Retry-After"
        if allowed(origin) and request.method == "OPTIONS":
            # A wildcard would not cover Authorization.
            asked = request.headers.get("Access-Control-Request-Headers", "*")
            response.headers["Access-Control-Allow-Headers"] = asked
            response.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE, OPTIONS"
            response.headers["Access-Control-Max-Age"] = "600"
        return response

    app.after_request(end)
