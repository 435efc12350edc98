"""Structured logs: one JSON object a line, bounded in size."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, ClassVar

from oxibonsai.server.settings import Settings

# Longer lines are cut: one request must not fill the log.
MAX_LINE = 8192


class JsonFormatter(logging.Formatter):
    """One record as one line of JSON.

    Attributes:
        request_id: Says which request the present thread works for; None: for none.
    """

    request_id: ClassVar[Callable[[], str | None]] = staticmethod(lambda: None)

    def format(self, record: logging.LogRecord) -> str:
        """The line; fields given as ``extra={"fields": {...}}`` become members of the object."""
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_LINE],
        }
        request_id = JsonFormatter.request_id()
        if request_id is not None:
            line["request_id"] = request_id
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-MAX_LINE:]
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
