"""Marks responses and runs that an earlier process left unfinished as failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from oxibonsai.server.openai.assistants.objects import ended_step
from oxibonsai.server.paging import all_of
from oxibonsai.server.stores import NoSuchObjectError, Object, Store

_log = logging.getLogger("oxibonsai.server")

_MESSAGE = "The server was stopped while processing this."
_ERROR = {"code": "server_error", "message": _MESSAGE}


def fail_interrupted(store: Store, living: frozenset[int] = frozenset()) -> int:
    """Fails all responses and runs that were in progress, except those of servers that live.

    Called before requests are accepted, or, where servers share the store, when one of them is gone.
    A run that waits for tool outputs goes on waiting.

    Args:
        store: The store.
        living: Numbers of the servers that share it and live.

    Returns:
        The number of failed responses and runs.
    """
    count = 0
    for status in ("queued", "in_progress", "cancelling"):
        for owner, record in store.responses.search(f'"status":"{status}"'):
            if record["response"]["status"] == status and record.get("server") not in living:
                failed = {**record["response"], "status": "failed", "error": _ERROR}
                count += _ended(partial(_replace, store, owner, {**record, "response": failed}))
        for owner, run in store.runs.search(f'"status":"{status}"'):
            if run["status"] == status and run.get("server") not in living:
                count += _ended(partial(_fail_run, store, owner, run))
    if count:
        _log.warning("%d interrupted responses and runs were marked as failed", count)
    return count


def _ended(end: Callable[[], None]) -> bool:
    """End an object, unless it was deleted in the meantime."""
    try:
        end()
    except NoSuchObjectError:
        return False
    return True


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
