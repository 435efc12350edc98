"""``/v1/messages/batches``: answers many messages in the background."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.anthropic.schemas import BatchCreate, BatchQuery
from oxibonsai.server.batches.records import (
    ENDED,
    find_batch,
    new_batch,
    new_request,
    succeeded,
)
from oxibonsai.server.batches.request_line import refusal_in_a_batch
from oxibonsai.server.batches.runner import BatchRunner
from oxibonsai.server.errors import ApiError
from oxibonsai.server.paging import PageQuery, all_of, list_page, page_query
from oxibonsai.server.sse import compact
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Object, Store
from oxibonsai.server.stores.collection import new_id
from oxibonsai.server.validation import as_body, read_body

_KIND = "anthropic"
_PATH = "/v1/messages"
_MOST_LISTED = 1000


def message_batches_blueprint(store: Store, runner: BatchRunner) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("message_batches", __name__)

    def find(batch_id: str) -> Object:
        return find_batch(store.batches, owner(), batch_id, _KIND)

    def shown(record: Object) -> Object:
        return _as_object(record, runner.counts(owner(), record), request.host_url)

    @bp.post("/v1/messages/batches")
    @stores_objects
    def create() -> Response:
        body = read_body(BatchCreate, request)
        for i, one in enumerate(body.requests):
            if (reason := refusal_in_a_batch(one.params)) is not None:
                place = f"requests.{i}.params"
                raise ApiError(400, f"{place}: {reason}.", param=place)
        runner.check_room(owner())
        record = new_batch(
            new_id("msgbatch_"), _KIND, "in_progress", counts={"total": len(body.requests)}
        )
        record = runner.create(owner(), record)
        # After a kill in between, the batch ends without requests: nobody knows its id.
        store.batch_requests.create_all(
            owner(),
            [new_request(one.custom_id, one.params, _PATH) for one in body.requests],
            parent=record["id"],
        )
        answer = jsonify(shown(record))
        runner.start(owner(), record)
        return answer

    @bp.get("/v1/messages/batches")
    def list_batches() -> Response:
        given = page_query(most=_MOST_LISTED)
        names = as_body(BatchQuery, {k: v for k, v in request.args.items() if k != "limit" and v})
        query = PageQuery(limit=given.limit, after=names.after_id, before=names.before_id)
        page = list_page(store.batches, owner(), query, keep=lambda r: r["kind"] == _KIND)
        data = [shown(r) for r in page.data]
        return jsonify(
            data=data,
            has_more=page.has_more,
            first_id=data[0]["id"] if data else None,
            last_id=data[-1]["id"] if data else None,
        )

    @bp.get("/v1/messages/batches/<batch_id>")
    def get(batch_id: str) -> Response:
        return jsonify(shown(find(batch_id)))

    @bp.post("/v1/messages/batches/<batch_id>/cancel")
    def cancel(batch_id: str) -> Response:
        find(batch_id)
        return jsonify(shown(runner.cancel(owner(), batch_id)))

    @bp.delete("/v1/messages/batches/<batch_id>")
    def delete(batch_id: str) -> Response:
        if find(batch_id)["status"] not in ENDED:
            raise ApiError(400, "The batch has not ended: cancel it before you delete it.")
        store.batches.delete(owner(), batch_id)
        return jsonify(id=batch_id, type="message_batch_deleted")

    @bp.get("/v1/messages/batches/<batch_id>/results")
    def results(batch_id: str) -> Response:
        record = find(batch_id)
        if record["status"] not in ENDED:
            raise ApiError(404, "The batch has not ended: there are no results yet.")
        requests = all_of(store.batch_requests, owner(), batch_id)
        return Response(_lines(requests, record), mimetype="application/x-jsonl")

    return bp


def _lines(requests: Iterator[Object], record: Object) -> Iterator[str]:
    for one in requests:
        line = {"custom_id": one["custom_id"], "result": _result(one["result"], record)}
        yield compact(line) + "\n"


def _result(result: Object | None, record: Object) -> Object:
    if result is None:
        return {"type": "expired" if record["status"] == "expired" else "canceled"}
    if succeeded(result):
        return {"type": "succeeded", "message": result["body"]}
    return {"type": "errored", "error": result["body"]}


def _as_object(record: Object, counts: dict[str, int], host_url: str) -> Object:
    status, times = record["status"], record["times"]
    ended = status in ENDED
    done = counts.get("succeeded", 0) + counts.get("errored", 0)
    rest = counts.get("total", 0) - done
    state = "ended" if ended else "canceling" if "cancelling" in times else "in_progress"
    return {
        "id": record["id"],
        "type": "message_batch",
        "processing_status": state,
        "request_counts": {
            "processing": 0 if ended else rest,
            "succeeded": counts.get("succeeded", 0),
            "errored": counts.get("errored", 0),
            "canceled": rest if status == "cancelled" else 0,
            "expired": rest if status == "expired" else 0,
        },
        "created_at": _time(times["created"]),
        "expires_at": _time(times["expires"]),
        "ended_at": _time(times[status]) if ended else None,
        "cancel_initiated_at": _time(times.get("cancelling")),
        "archived_at": None,
        "results_url": f"{host_url}v1/messages/batches/{record['id']}/results" if ended else None,
    }


def _time(seconds: int | None) -> str | None:
    """Return the time as RFC 3339, as Anthropic writes it."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
