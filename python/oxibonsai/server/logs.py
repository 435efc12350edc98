"""Structured logs: one JSON object a line, bounded in size, with the id of the request."""

from __future__ import annotations

import json
import logging
import logging.handlers
import re
import secrets
import sys
import time
from datetime import datetime, timezone
from typing import Any

from flask import Flask, Response, g, has_request_context, request

from oxibonsai.server.settings import Settings

_log = logging.getLogger("oxibonsai.access")
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Longer lines are cut: one request must not fill the log.
_MAX_LINE = 8192


class JsonFormatter(logging.Formatter):
    """One record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; fields given as ``extra={"fields": {...}}`` become members of the object."""
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_MAX_LINE],
        }
        if has_request_context() and "request_id" in g:
            line["request_id"] = g.request_id
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-_MAX_LINE:]
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logs(settings: Settings) -> None:
    """Sends all log records of this process to the file of the settings, else to stderr."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.log_file is not None:
        settings.log_file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            settings.log_file,
            maxBytes=int(settings.log_max_mb * 2**20),
            backupCount=2,
            encoding="utf-8",
        )
    handler.setFormatter(JsonFormatter())
    level = logging.DEBUG if settings.verbose else logging.INFO
    for name in ("oxibonsai", "gunicorn"):
        logger = logging.getLogger(name)
        for old in logger.handlers:
            old.close()
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def register_logs(app: Flask, *, prompts: bool) -> None:
    """A line for each request, and ``X-Request-Id`` on each answer.

    Args:
        app: The application.
        prompts: Write the bodies of requests too.
    """

    def begin() -> None:
        sent = request.headers.get("X-Request-Id", "")
        # A client's id goes to logs and headers, so it must be a plain word.
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
            fields["body"] = g.get("body_text", "")[:_MAX_LINE]
        arrived = g.arrived

        @response.call_on_close
        def closed() -> None:
            seconds = round(time.perf_counter() - arrived, 6)
            _log.info("request", extra={"fields": {**fields, "seconds": seconds}})

        return response

    app.before_request(begin)
    app.after_request(end)
