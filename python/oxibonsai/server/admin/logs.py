"""Structured logs: one JSON object per line, limited in size."""

from __future__ import annotations

import logging
import logging.handlers
import re
import secrets
import sys
import time
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, TextIO

from flask import Flask, Response, g, has_request_context, request
from pythonjsonlogger import json

from oxibonsai.files.whole_file import STANDARD_OUTPUT, is_standard_output, make_room
from oxibonsai.server.settings import Settings

_log = logging.getLogger("oxibonsai.access")
# Longer messages are truncated: one request must not fill the log.
MAX_LINE = 8192


class JsonFormatter(json.JsonFormatter):
    """Formats a record as one line of JSON; ``extra`` values become members of the object.

    Attributes:
        request_id: Returns the id of the request that the current thread handles, or None.
    """

    request_id: ClassVar[Callable[[], str | None]] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__(
            ["asctime", "levelname", "name", "message"],
            rename_fields={
                "asctime": "time",
                "levelname": "level",
                "name": "logger",
                "exc_info": "exception",
            },
            json_default=str,
            json_ensure_ascii=False,
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time in UTC with milliseconds."""
        when = datetime.fromtimestamp(record.created, timezone.utc)
        return when.isoformat(timespec="milliseconds")

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Truncate long values and add the request id."""
        request_id = JsonFormatter.request_id()
        if request_id is not None:
            log_data.setdefault("request_id", request_id)
        log_data["level"] = log_data["level"].lower()
        log_data["message"] = log_data["message"][:MAX_LINE]
        if "exception" in log_data:
            log_data["exception"] = log_data["exception"][-MAX_LINE:]
        return log_data


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class PlainFormatter(logging.Formatter):
    """Formats a record as a line to read: the time, the level where it is no news, what happened."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; ``extra`` values follow the message."""
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        facts = {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        if record.name == _log.name:
            text = f"{facts['method']} {facts['path']} {facts['status']}, {facts['seconds']:.2f} s"
            facts = {"body": facts["body"]} if "body" in facts else {}
        else:
            text = record.getMessage()
        text += "".join(f", {name} {value}" for name, value in facts.items())
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{when} {level}{text[:MAX_LINE]}"


def logs_to_terminal(settings: Settings) -> bool:
    """Return whether somebody reads the log as it comes: it goes to stderr, and that is a terminal."""
    return settings.log_file is None and sys.stderr.isatty()


def configure_logs(settings: Settings) -> None:
    """Send all log records of this process to the log file of the settings, or to stderr.

    They are JSON, but on a terminal plain lines.
    """
    plain = logs_to_terminal(settings)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    file = STANDARD_OUTPUT if settings.log_file == Path("-") else settings.log_file
    if file is not None and is_standard_output(file):
        handler = logging.StreamHandler(sys.stdout)
    elif file is not None:
        handler = logging.handlers.RotatingFileHandler(
            make_room(file),  # rotation renames it: not a link to it
            maxBytes=int(settings.log_max_mb * 2**20),
            backupCount=2,
            encoding="utf-8",
        )
    handler.setFormatter(PlainFormatter() if plain else JsonFormatter())
    level = logging.DEBUG if settings.verbose else logging.INFO
    for name in ("oxibonsai", "gunicorn", "waitress"):
        logger = logging.getLogger(name)
        for old in logger.handlers:
            old.close()
        logger.handlers = [handler]
        # Of the work of an HTTP server a reader needs to know the failures.
        quiet = plain and name != "oxibonsai" and not settings.verbose
        logger.setLevel(logging.WARNING if quiet else level)
        logger.propagate = False
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log what a part of the package warns of."""
    logging.getLogger("oxibonsai.server").warning("%s", message)


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
