"""Access log: one line per request, and the request id on all log lines written for it."""

from __future__ import annotations

import logging
import re
import secrets
import time

from flask import Flask, Response, g, has_request_context, request

from oxibonsai.server.admin.logs import MAX_LINE, JsonFormatter

_log = logging.getLogger("oxibonsai.access")
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def register_logs(app: Flask, *, prompts: bool) -> None:
    """Log each request, and set ``X-Request-Id`` on each response.

    Args:
        app: The application.
        prompts: Log request bodies too.
    """

    def begin() -> None:
        sent = request.headers.get("X-Request-Id", "")
        # A client's id is used in logs and headers, so only safe characters are accepted.
        g.request_id = sent if _SAFE_ID.fullmatch(sent) else "req_" + secrets.token_hex(12)
        g.arrived = time.perf_counter()

    def end(response: Response) -> Response:
        response.headers["X-Request-Id"] = g.request_id
        fields = {
            "request_id": g.request_id,
            "method": request.method[:16],
            "path": request.path[:256],
            "status": response.status_code,
            "client": request.remote_addr,
        }
        if prompts:
            fields["body"] = g.get("body_text", "")[:MAX_LINE]
        arrived = g.arrived

        @response.call_on_close
        def closed() -> None:
            seconds = round(time.perf_counter() - arrived, 6)
            _log.info("request", extra={**fields, "seconds": seconds})

        return response

    JsonFormatter.request_id = staticmethod(_request_id)
    app.before_request(begin)
    app.after_request(end)


def _request_id() -> str | None:
    return g.get("request_id") if has_request_context() else None
