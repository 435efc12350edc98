"""``/v1/batches``: answers the requests of a file in the background."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.batches.records import find_batch, new_batch
from oxibonsai.server.batches.runner import BatchRunner
from oxibonsai.server.errors import ApiError
from oxibonsai.server.openai.schemas.files import BatchCreate
from oxibonsai.server.paging import list_page, page_query
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Object, Page, Store
from oxibonsai.server.stores.collection import new_id
from oxibonsai.server.validation import read_body

_KIND = "openai"


def batches_blueprint(store: Store, runner: BatchRunner) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("batches", __name__)

    def find(batch_id: str) -> Object:
        return find_batch(store.batches, owner(), batch_id, _KIND)

    def shown(record: Object) -> Object:
        return _as_object(record, runner.counts(owner(), record))

    @bp.post("/v1/batches")
    @stores_objects
    def create() -> Response:
        body = read_body(BatchCreate, request)
        runner.check_room(owner())
        if store.files.get(owner(), body.input_file_id)["purpose"] != "batch":
            raise ApiError(
                400, "input_file_id: the file's purpose is not batch.", param="input_file_id"
            )
        expires = body.output_expires_after
        record = new_batch(
            new_id("batch_"),
            _KIND,
            "validating",
            endpoint=body.endpoint,
            input_file_id=body.input_file_id,
            metadata=body.metadata,
            output_expires_seconds=expires and expires.seconds,
        )
        record = runner.create(owner(), record)
        answer = jsonify(shown(record))
        runner.start(owner(), record)
        return answer

    @bp.get("/v1/batches")
    def list_batches() -> Response:
        page = list_page(store.batches, owner(), page_query(), keep=lambda r: r["kind"] == _KIND)
        return jsonify(Page([shown(r) for r in page.data], page.has_more).to_json())

    @bp.get("/v1/batches/<batch_id>")
    def get(batch_id: str) -> Response:
        return jsonify(shown(find(batch_id)))

    @bp.post("/v1/batches/<batch_id>/cancel")
    def cancel(batch_id: str) -> Response:
        find(batch_id)
        return jsonify(shown(runner.cancel(owner(), batch_id)))

    return bp


def _as_object(record: Object, counts: dict[str, int]) -> Object:
    times, errors = record["times"], record["errors"]
    return {
        "id": record["id"],
        "object": "batch",
        "endpoint": record["endpoint"],
        "errors": errors and {"object": "list", "data": errors},
        "input_file_id": record["input_file_id"],
        "completion_window": "24h",
        "status": record["status"],
        "output_file_id": record.get("output_file_id"),
        "error_file_id": record.get("error_file_id"),
        "created_at": times["created"],
        "in_progress_at": times.get("in_progress"),
        "expires_at": times["expires"],
        "finalizing_at": times.get("finalizing"),
        "completed_at": times.get("completed"),
        "failed_at": times.get("failed"),
        "expired_at": times.get("expired"),
        "cancelling_at": times.get("cancelling"),
        "cancelled_at": times.get("cancelled"),
        "request_counts": {
            "total": counts.get("total", 0),
            "completed": counts.get("succeeded", 0),
            "failed": counts.get("errored", 0),
        },
        "metadata": record["metadata"],
    }
