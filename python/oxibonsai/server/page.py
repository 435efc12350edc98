"""The chat page at ``/`` and the page of routes at ``/docs``: static files, served without a key."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, abort, send_from_directory

from oxibonsai.server.access import public

_STATIC = Path(__file__).with_name("static")

# Explicit, since the system's MIME table varies and nosniff makes a wrong type fatal.
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}

# The page shows untrusted model output, so it may only use its own files and its own server: no
# inline scripts or styles, no eval, no other origins, no framing. Trusted Types make the browser
# reject innerHTML and similar sinks, except for markup that DOMPurify has sanitized.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # blob: is an image that the visitor attached, shown small beside the message.
        "img-src 'self' blob:",
        "font-src 'self'",
        "connect-src 'self'",
        # Previews of what a model wrote: see PREVIEW_POLICY.
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)

# A preview runs HTML that a model wrote. The sandbox gives it an origin of its own, so that it reaches
# neither the page nor its storage, and it may load nothing, connect to nothing and open nothing.
PREVIEW_POLICY = "; ".join(
    (
        "sandbox allow-scripts",
        "default-src 'none'",
        "script-src 'unsafe-inline'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "font-src data:",
        "media-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "webrtc 'block'",
        "frame-ancestors 'self'",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Cached, but revalidated each time (304 by ETag), since file names have no version.
    "Cache-Control": "no-cache",
}

page = Blueprint("page", __name__)


@page.get("/")
@public
def index() -> Response:
    """Return the page itself. Its links are relative, so it works behind any path prefix."""
    return _send("index.html")


@page.get("/docs")
@public
def routes() -> Response:
    """Return the page of all routes, which it reads from ``/openapi.json``."""
    return _send("routes.html")


@page.get("/ui/<name>")
@public
def asset(name: str) -> Response:
    """Return a script, style sheet or image of the page."""
    return _send(name)


@page.get("/ui/vendor/<name>")
@public
def vendored(name: str) -> Response:
    """Return a third-party script or style sheet."""
    return _send(f"vendor/{name}")


@page.get("/ui/vendor/fonts/<name>")
@public
def font(name: str) -> Response:
    """Return a font of the third-party style sheet."""
    return _send(f"vendor/fonts/{name}")


@page.get("/ui/preview/frame.html")
@public
def preview() -> Response:
    """Return the document in whose place a preview is shown."""
    response = _send("preview/frame.html")
    response.headers["Content-Security-Policy"] = PREVIEW_POLICY
    response.headers["X-DNS-Prefetch-Control"] = "off"
    return response


def _send(name: str) -> Response:
    media_type = _TYPES.get(Path(name).suffix)
    if media_type is None:
        abort(404)
    return send_from_directory(_STATIC, name, mimetype=media_type)


@page.after_request
def add_headers(response: Response) -> Response:
    """Add the page's security headers to each of its responses."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
