"""Warnings about a request that is served all the same, in a header of the response."""

from __future__ import annotations

import re

from flask import Flask, Response, g, has_app_context

HEADER = "X-OxiBonsai-Warning"
_MOST, _MOST_CHARACTERS = 8, 400


def warn(text: str) -> None:
    """Add a warning to the response of the current request; outside of one it is dropped."""
    if has_app_context():
        warnings: list[str] = g.setdefault("warnings", [])
        if text not in warnings and len(warnings) < _MOST:
            warnings.append(text)


def register_warnings(app: Flask) -> None:
    """Send the warnings of each request with its response."""

    def send(response: Response) -> Response:
        for text in g.get("warnings", ()):
            # Headers are one line of ASCII; names of a client's own fields may be anything.
            line = text.encode("ascii", "backslashreplace").decode()
            response.headers.add(HEADER, re.sub(r"[^ -~]", " ", line)[:_MOST_CHARACTERS])
        return response

    app.after_request(send)
