"""Structured logs: one JSON object per line, limited in size."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from pythonjsonlogger import json

from oxibonsai.files.whole_file import STANDARD_OUTPUT, is_standard_output, make_room
from oxibonsai.server.settings import Settings

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


def configure_logs(settings: Settings) -> None:
    """Send all log records of this process to the log file of the settings, or to stderr."""
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
    handler.setFormatter(JsonFormatter())
    level = logging.DEBUG if settings.verbose else logging.INFO
    for name in ("oxibonsai", "gunicorn"):
        logger = logging.getLogger(name)
        for old in logger.handlers:
            old.close()
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
