"""``/v1/conversations``: items that responses read and continue."""

from __future__ import annotations

import time
from collections.abc import Iterable

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.openai.responses.items import new_items
from oxibonsai.server.openai.schemas.assistants import MetadataChange
from oxibonsai.server.openai.schemas.conversations import ConversationCreate, ConversationItems
from oxibonsai.server.openai.schemas.responses import Item
from oxibonsai.server.paging import list_page, page_query
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Object, Page, Store
from oxibonsai.server.validation import read_body


def conversations_blueprint(store: Store) -> Blueprint:
    """Return the routes of conversations and their items."""
    bp = Blueprint("conversations", __name__)

    @bp.post("/v1/conversations")
    @stores_objects
    def create() -> Response:
        body = read_body(ConversationCreate, request)
        made = store.conversations.create(
            owner(),
            {
                "object": "conversation",
                "created_at": int(time.time()),
                "metadata": body.metadata or {},
            },
        )
        _add(made["id"], body.items or ())
        return jsonify(made)

    @bp.get("/v1/conversations/<conversation_id>")
    def get(conversation_id: str) -> Response:
        return jsonify(store.conversations.get(owner(), conversation_id))

    @bp.post("/v1/conversations/<conversation_id>")
    def change(conversation_id: str) -> Response:
        metadata = read_body(MetadataChange, request).metadata or {}
        changed = store.conversations.change(
            owner(), conversation_id, lambda c: {**c, "metadata": metadata}
        )
        return jsonify(changed)

    @bp.delete("/v1/conversations/<conversation_id>")
    def delete(conversation_id: str) -> Response:
        store.conversations.delete(owner(), conversation_id)
        return jsonify(id=conversation_id, object="conversation.deleted", deleted=True)

    @bp.post("/v1/conversations/<conversation_id>/items")
    @stores_objects
    def add_items(conversation_id: str) -> Response:
        store.conversations.get(owner(), conversation_id)  # an unknown one is the first error
        added = _add(conversation_id, read_body(ConversationItems, request).items)
        return jsonify(Page(added, has_more=False).to_json())

    @bp.get("/v1/conversations/<conversation_id>/items")
    def list_items(conversation_id: str) -> Response:
        page = list_page(store.conversation_items, owner(), page_query(), parent=conversation_id)
        return jsonify(page.to_json())

    @bp.get("/v1/conversations/<conversation_id>/items/<item_id>")
    def get_item(conversation_id: str, item_id: str) -> Response:
        return jsonify(store.conversation_items.get(owner(), item_id, parent=conversation_id))

    @bp.delete("/v1/conversations/<conversation_id>/items/<item_id>")
    def delete_item(conversation_id: str, item_id: str) -> Response:
        store.conversation_items.delete(owner(), item_id, parent=conversation_id)
        return jsonify(store.conversations.get(owner(), conversation_id))

    def _add(conversation_id: str, items: Iterable[Item]) -> list[Object]:
        return store.conversation_items.create_all(
            owner(), new_items(items), parent=conversation_id
        )

    return bp
