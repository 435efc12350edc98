"""Marks responses and runs that an earlier process left unfinished as failed."""

from __future__ import annotations

import logging
import time

from oxibonsai.server.openai.assistants.objects import ended_step
from oxibonsai.server.paging import all_of
from oxibonsai.server.stores import Object, Store

_log = logging.getLogger("oxibonsai.server")

_MESSAGE = "The server was stopped while processing this."
_ERROR = {"code": "server_error", "message": _MESSAGE}


def fail_interrupted(store: Store) -> int:
    """Fails all responses and runs that were in progress; called before requests are accepted.

    A run that waits for tool outputs goes on waiting.

    Returns:
        The number of failed responses and runs.
    """
    count = 0
    for status in ("queued", "in_progress", "cancelling"):
        for owner, record in store.responses.search(f'"status":"{status}"'):
            if record["response"]["status"] == status:
                failed = {**record["response"], "status": "failed", "error": _ERROR}
                _replace(store, owner, {**record, "response": failed})
                count += 1
        for owner, run in store.runs.search(f'"status":"{status}"'):
            if run["status"] == status:
                _fail_run(store, owner, run)
                count += 1
    if count:
        _log.warning("%d interrupted responses and runs were marked as failed", count)
    return count


def _replace(store: Store, owner: str, record: Object) -> None:
    store.responses.change(owner, record["id"], lambda _: record)


def _fail_run(store: Store, owner: str, run: Object) -> None:
    now = int(time.time())
    failed = {"status": "failed", "failed_at": now, "last_error": _ERROR}
    for step in all_of(store.run_steps, owner, run["id"]):
        if step["status"] == "in_progress":
            store.run_steps.change(
                owner, step["id"], lambda s: ended_step(s, "failed", last_error=_ERROR)
            )
    incomplete = {
        "status": "incomplete",
        "incomplete_at": now,
        "incomplete_details": {"reason": "run_failed"},
    }
    for message in all_of(store.messages, owner, run["thread_id"]):
        if message["run_id"] == run["id"] and message["status"] == "in_progress":
            store.messages.change(owner, message["id"], lambda m: {**m, **incomplete})
    # Last: when the run is seen as ended, its parts have ended too.
    store.runs.change(owner, run["id"], lambda r: {**r, **failed, "usage": r["used"]})
