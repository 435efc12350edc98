"""``/v1/responses``."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.errors import ApiError
from oxibonsai.server.openai.responses.service import ResponseService
from oxibonsai.server.openai.schemas.responses import InputTokensRequest, ResponseRequest
from oxibonsai.server.paging import item_page, list_page, page_query
from oxibonsai.server.stores import Collection, Page
from oxibonsai.server.validation import read_body


def responses_blueprint(service: ResponseService, store: Collection) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("responses", __name__)

    @bp.post("/v1/responses")
    @bp.post("/responses")
    def create() -> Response:
        body = read_body(ResponseRequest, request)
        # The path without /v1 is llama-server's route.
        plain = request.path.rstrip("/") == "/responses"
        return service.create(owner(), body, always_completed=plain)

    @bp.post("/v1/responses/input_tokens")
    def count_tokens() -> Response:
        count = service.count(owner(), read_body(InputTokensRequest, request))
        return jsonify(object="response.input_tokens", input_tokens=count)

    @bp.post("/v1/responses/compact")
    def compact() -> Response:
        return jsonify(service.compact(owner(), read_body(InputTokensRequest, request)))

    @bp.get("/v1/responses")
    def list_responses() -> Response:
        page = list_page(store, owner(), page_query())
        return jsonify(Page([r["response"] for r in page.data], page.has_more).to_json())

    @bp.get("/v1/responses/<response_id>")
    def get(response_id: str) -> Response:
        record = store.get(owner(), response_id)
        if request.args.get("stream", "false").lower() == "true":
            return service.follow(owner(), record, _starting_after())
        return jsonify(record["response"])

    @bp.delete("/v1/responses/<response_id>")
    def delete(response_id: str) -> Response:
        service.delete(owner(), response_id)
        return jsonify(id=response_id, object="response", deleted=True)

    @bp.post("/v1/responses/<response_id>/cancel")
    def cancel(response_id: str) -> Response:
        return jsonify(service.cancel(owner(), response_id))

    @bp.get("/v1/responses/<response_id>/input_items")
    def input_items(response_id: str) -> Response:
        items = store.get(owner(), response_id)["input"]
        return jsonify(item_page(items, page_query()).to_json())

    return bp


def _starting_after() -> int | None:
    text = request.args.get("starting_after")
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise ApiError(400, "starting_after is not a sequence number", param="starting_after")
    return int(text)
