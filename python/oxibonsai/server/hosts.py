"""Check which hosts and web pages may call the server: ``Host`` headers, CORS, cross-site requests.

``Host`` headers protect servers without API keys against DNS rebinding.
A web page can have its own host name resolve to 127.0.0.1. The browser then treats this server as the
page's origin and lets the page read every response; but the ``Host`` header still has the page's name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence

from flask import Flask, Response, request
from flask_cors import CORS

from oxibonsai.server.access import RATE_HEADERS, KeyRing
from oxibonsai.server.errors import ApiError
from oxibonsai.server.schemas.request_warnings import HEADER
from oxibonsai.server.settings import Settings

# Orchestrators send probes with any host name; they reveal nothing about requests.
_PROBES = ("health.",)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


def register_hosts(app: Flask, settings: Settings, keys: KeyRing) -> None:
    """Reject requests without exactly one ``Host``; without API keys, also those to unknown hosts."""
    names = {name.lower().rstrip(".") for name in (*settings.host, *settings.allowed_hosts)}

    def check() -> None:
        host = request.environ.get("HTTP_HOST")
        if host is None:
            # Browsers always send it; only HTTP/1.0 clients may leave it out.
            if request.environ.get("SERVER_PROTOCOL") != "HTTP/1.0":
                raise ApiError(400, "The Host header is missing.")
            return
        if not host.strip() or "," in host:
            raise ApiError(400, "There must be one Host header with one name.")
        if not keys.is_open or "*" in names or (request.endpoint or "").startswith(_PROBES):
            return
        name = host_name(host)
        if not (is_local(name) or name in names):
            raise ApiError(
                403,
                f"Without API keys this server only accepts requests to localhost and IP addresses, "
                f"not to '{name[:80]}': start it with --allowed-host {name[:80]}, or set an API key.",
                code="host_not_allowed",
            )

    app.before_request(check)


def host_name(host: str) -> str:
    """Return the normalized name in a ``Host`` header, without the port."""
    found = _HOST.fullmatch(host.strip())
    return (host if found is None else found[1]).lower().rstrip(".")


def is_local(name: str) -> bool:
    """Return whether the name can't be rebound by DNS: ``localhost``, a subdomain of it, an IP address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


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
            expose_headers=["X-Request-Id", "Retry-After", *RATE_HEADERS, HEADER],
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
    """Return whether the origin is this server; the scheme is ignored since a proxy may terminate TLS."""
    _, found, host = origin.partition("://")
    return bool(found) and host.lower() == request.headers.get("Host", "").strip().lower()
