"""Periodic cleanup of the store, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time

from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.stores import Store

_log = logging.getLogger("oxibonsai.server")
_EVERY_SECONDS = 3600.0


def start_housekeeping(store: Store, retention_seconds: float) -> None:
    """Delete old objects and orphaned contents, now and every hour."""

    def run() -> None:
        while True:
            try:
                forgotten = store.forget_old(retention_seconds)
                store.files.sweep()
                store.forget_rate_limits()
            except OxiBonsaiError as e:
                _log.error("housekeeping: %s", e)
            else:
                _log.debug("housekeeping: %d old objects deleted", forgotten)
            time.sleep(_EVERY_SECONDS)

    threading.Thread(target=run, name="housekeeping", daemon=True).start()
