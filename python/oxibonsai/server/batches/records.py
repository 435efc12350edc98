"""Stored records of a batch and of its requests.

A batch has OpenAI's statuses; those of Anthropic's API follow from them. A request is answered once
its ``result`` is not null: ``{"status", "request_id", "body"}`` of an HTTP response. A request that
has none when the batch has ended was cancelled or has expired, as the batch has.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from oxibonsai.server.stores import Collection, NoSuchObjectError, Object

ENDED = ("completed", "failed", "expired", "cancelled")
WINDOW_SECONDS = 24 * 3600
MOST_REQUESTS = 50_000
# Times that the reading of an input file, or a request, is begun again after the server was stopped in
# the middle of it.
MOST_STARTS = 5


def new_batch(batch_id: str, kind: str, status: str, **fields: Any) -> Object:
    """Return a batch that was just created.

    Args:
        batch_id: Its id.
        kind: The API it belongs to: ``openai`` or ``anthropic``.
        status: Its first status.
        fields: What its API needs besides.
    """
    now = int(time.time())
    times = {"created": now, status: now, "expires": now + WINDOW_SECONDS}
    begun = {"id": batch_id, "kind": kind, "status": status, "times": times}
    return {**begun, "counts": {}, "errors": None, **fields}


def find_batch(batches: Collection, owner: str, batch_id: str, kind: str) -> Object:
    """Return a batch of one API.

    Raises:
        NoSuchObjectError: There is none; one of the other API is none.
    """
    record = batches.get(owner, batch_id)
    if record["kind"] != kind:
        raise NoSuchObjectError("batch", batch_id)
    return record


def with_status(batch: Object, status: str, **fields: Any) -> Object:
    """Return the batch with a new status; the time of the change is kept under its name."""
    times = {**batch["times"], status: int(time.time())}
    return {**batch, "status": status, "times": times, **fields}


def new_request(custom_id: str, body: Mapping[str, Any], path: str) -> Object:
    """Return a request of a batch; its result is still to come.

    Its body is kept as text, since many small values take tens of times their size in memory.
    """
    text = json.dumps(body)
    return {"custom_id": custom_id, "path": path, "body": text, "starts": 0, "result": None}


def body_of(request: Object) -> str:
    """Return the JSON of a request's body; earlier versions have stored its object."""
    body = request["body"]
    return body if isinstance(body, str) else json.dumps(body)


def succeeded(result: Object) -> bool:
    """Return whether a request was answered without an error."""
    return bool(result["status"] < 400)


def count_results(requests: Iterable[Object]) -> Counter[str]:
    """Count requests in all (``total``), and those that ``succeeded`` and ``errored``."""
    counts: Counter[str] = Counter()
    for request in requests:
        counts["total"] += 1
        if request["result"] is not None:
            counts["succeeded" if succeeded(request["result"]) else "errored"] += 1
    return counts
