"""CORS, and protection against cross-site requests: which web pages may call the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from flask import Flask, Response, request
from flask_cors import CORS

from oxibonsai.server.errors import ApiError

_LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def register_origins(app: Flask, origins: Sequence[str]) -> None:
    """Add CORS headers for allowed origins, and rejects cross-site writes from all others.

    Browsers send forms, files and plain text to any server without a preflight request; hiding the
    response from the page would be too late.

    Args:
        app: The application.
        origins: Allowed origins such as ``https://page.example``; ``localhost`` for any port of this
            machine, ``*`` for all origins.
    """
    patterns = [_pattern(origin) for origin in origins]

    def allowed(origin: str) -> bool:
        return any(p.match(origin) for p in patterns)

    app.before_request(_refusal_of_foreign_writes(allowed))
    if patterns:
        CORS(
            app,
            origins=patterns,
            methods=["GET", "POST", "DELETE", "OPTIONS"],
            allow_headers="*",  # echoes the preflight's names: a literal wildcard excludes Authorization
            expose_headers=["X-Request-Id", "Retry-After"],
            supports_credentials=True,
            max_age=600,
            vary_header=False,
            intercept_exceptions=False,  # errors are ordinary responses
        )
        app.after_request(_vary)


def _pattern(origin: str) -> re.Pattern[str]:
    """Return an origin as a regular expression for flask-cors, which matches from the beginning."""
    if origin == "*":
        return re.compile(r".*")
    text = _LOCALHOST if origin == "localhost" else re.escape(origin.rstrip("/"))
    return re.compile(rf"(?:{text})\Z", re.IGNORECASE)


def _vary(response: Response) -> Response:
    # On errors too: caches must keep the responses for different origins apart.
    if "Origin" in request.headers:
        response.vary.add("Origin")
    return response


def _refusal_of_foreign_writes(allowed: Callable[[str], bool]) -> Callable[[], None]:
    def check() -> None:
        if request.method in SAFE_METHODS:
            return
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        # Browsers set Sec-Fetch-Site on requests to trustworthy origins; pages can't change it.
        if site == "same-origin" or (origin is not None and allowed(origin)):
            return
        foreign = site not in (None, "none") if origin is None else not _is_own(origin)
        if foreign or site == "cross-site":
            named = "of another site" if origin is None else f"of '{origin[:120]}'"
            raise ApiError(
                403,
                f"Requests from a page {named} are not allowed: start the server with --cors-origins "
                "and the page's origin to allow them.",
                code="origin_not_allowed",
            )

    return check


def _is_own(origin: str) -> bool:
    """Whether the origin is this server; the scheme is ignored since a proxy may terminate TLS."""
    _, found, host = origin.partition("://")
    return bool(found) and host.lower() == request.headers.get("Host", "").strip().lower()
