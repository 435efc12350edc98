"""The chat page at ``/``: files that need no build step, no network and no key."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, abort, send_from_directory

from oxibonsai.server.access import public

_STATIC = Path(__file__).with_name("static")

# Named here because a wrong type beside nosniff is a dead page, and the system's table varies.
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

# The page shows what a model wrote, so it gets nothing beyond its own files and its own server:
# no inline script or style, no eval, no other origin for anything, no frame around it. Trusted
# types make the browser itself refuse innerHTML and its kin, whatever the scripts say; DOMPurify
# alone, which looks at markup before the page takes it, may have markup parsed.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Kept, but asked for again each time (304 by its ETag): names carry no version.
    "Cache-Control": "no-cache",
}

page = Blueprint("page", __name__)


@page.get("/")
@public
def index() -> Response:
    """The page itself. Its links are relative, so it works behind any prefix."""
    return _send("index.html")


@page.get("/ui/<name>")
@public
def asset(name: str) -> Response:
    """A script, style sheet or picture of the page."""
    return _send(name)


@page.get("/ui/vendor/<name>")
@public
def vendored(name: str) -> Response:
    """A script of another project."""
    return _send(f"vendor/{name}")


def _send(name: str) -> Response:
    media_type = _TYPES.get(Path(name).suffix)
    if media_type is None:
        abort(404)
    return send_from_directory(_STATIC, name, mimetype=media_type)


@page.after_request
def add_headers(response: Response) -> Response:
    """Puts the page's headers on each of its answers."""
    response.headers.update(HEADERS)
    return response
