"""``/v1/assistants``."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.openai.assistants.objects import changed_assistant, new_assistant
from oxibonsai.server.openai.schemas.assistants import AssistantChange, AssistantCreate
from oxibonsai.server.paging import list_page, page_query
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Collection
from oxibonsai.server.validation import read_body


def assistants_blueprint(store: Collection) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("assistants", __name__)

    @bp.post("/v1/assistants")
    @stores_objects
    def create() -> Response:
        body = read_body(AssistantCreate, request)
        return jsonify(store.create(owner(), new_assistant(body)))

    @bp.get("/v1/assistants")
    def list_assistants() -> Response:
        return jsonify(list_page(store, owner(), page_query()).to_json())

    @bp.get("/v1/assistants/<assistant_id>")
    def get(assistant_id: str) -> Response:
        return jsonify(store.get(owner(), assistant_id))

    @bp.post("/v1/assistants/<assistant_id>")
    def change(assistant_id: str) -> Response:
        store.get(owner(), assistant_id)
        body = read_body(AssistantChange, request)
        edit = lambda kept: changed_assistant(kept, body)  # noqa: E731
        return jsonify(store.change(owner(), assistant_id, edit))

    @bp.delete("/v1/assistants/<assistant_id>")
    def delete(assistant_id: str) -> Response:
        store.delete(owner(), assistant_id)
        return jsonify(id=assistant_id, object="assistant.deleted", deleted=True)

    return bp
