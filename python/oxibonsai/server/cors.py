"""Which web pages may call: the server's own, and those whose origin is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from flask import Flask, Response, request
from flask_cors import CORS

from oxibonsai.server.errors import ApiError

_LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def register_origins(app: Flask, origins: Sequence[str]) -> None:
    """Tells browsers which pages may read answers, and refuses what other pages try to change.

    Browsers send forms, files and plain text to any server without asking it first: an answer that
    the page can't read comes too late.

    Args:
        app: The application.
        origins: ``https://page.example`` and the like; ``localhost`` for pages of this machine on
            any port, ``*`` for all.
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
            allow_headers="*",  # those that the preflight names: a wildcard leaves out Authorization
            expose_headers=["X-Request-Id", "Retry-After"],
            supports_credentials=True,
            max_age=600,
            vary_header=False,
            intercept_exceptions=False,  # errors are answers like any other
        )
        app.after_request(_vary)


def _pattern(origin: str) -> re.Pattern[str]:
    """An origin as flask-cors takes it: an expression that has to match from the beginning."""
    if origin == "*":
        return re.compile(r".*")
    text = _LOCALHOST if origin == "localhost" else re.escape(origin.rstrip("/"))
    return re.compile(rf"(?:{text})\Z", re.IGNORECASE)


def _vary(response: Response) -> Response:
    # On refusals too: caches must keep the answers for two origins apart.
    if "Origin" in request.headers:
        response.vary.add("Origin")
    return response


def _refusal_of_foreign_writes(allowed: Callable[[str], bool]) -> Callable[[], None]:
    def check() -> None:
        if request.method in _SAFE_METHODS:
            return
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        # Browsers say this of every request to a safe context; no page can change what they say.
        if site == "same-origin" or (origin is not None and allowed(origin)):
            return
        foreign = site not in (None, "none") if origin is None else not _is_own(origin)
        if foreign or site == "cross-site":
            named = "of another site" if origin is None else f"of '{origin[:120]}'"
            raise ApiError(
                403,
                f"A page {named} may not do this: start the server with --cors-origins and the "
                "page's origin to allow it.",
                code="origin_not_allowed",
            )

    return check


def _is_own(origin: str) -> bool:
    """Whether a page came from here; a proxy may have taken TLS off, so the scheme says nothing."""
    _, found, host = origin.partition("://")
    return bool(found) and host.lower() == request.headers.get("Host", "").strip().lower()
