"""``/v1/conversations``, and stored chat completions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.openai.responses.items import new_items
from oxibonsai.server.openai.schemas.assistants import MetadataChange
from oxibonsai.server.openai.schemas.chat import ChatBody
from oxibonsai.server.openai.schemas.responses import ConversationCreate, ConversationItems, Item
from oxibonsai.server.paging import PageQuery, item_page, list_page, page_query
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Collection, Object, Page, Store
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


# Fields of the request that the stored object repeats.
_REPEATED = {
    "tools", "tool_choice", "response_format", "temperature", "top_p", "seed",
    "presence_penalty", "frequency_penalty",
}  # fmt: skip
_FILTER = re.compile(r"metadata\[(.+)\]")


class CompletionQuery(PageQuery):
    """The query parameters of ``GET /v1/chat/completions``; ``metadata[KEY]`` filters by metadata."""

    order: Literal["asc", "desc"] = "asc"
    model: str | None = None


def stored_completion(body: ChatBody, completion: Mapping[str, Any]) -> Object:
    """Return the record of a chat completion.

    Args:
        body: The request.
        completion: The whole answer.
    """
    repeated = body.model_dump(mode="json", include=_REPEATED, by_alias=True)
    whole = {**repeated, **completion, "metadata": body.metadata or {}}
    return {"id": whole["id"], "completion": whole, "messages": body.messages}


def stored_completions_blueprint(store: Collection) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("stored_completions", __name__)

    @bp.get("/v1/chat/completions")
    def list_completions() -> Response:
        model, metadata = request.args.get("model"), _metadata_filter()

        def keep(record: Object) -> bool:
            found = record["completion"]
            return model in (None, found["model"]) and metadata.items() <= found["metadata"].items()

        page = list_page(store, owner(), page_query(order="asc"), keep=keep)
        return jsonify(Page([r["completion"] for r in page.data], page.has_more).to_json())

    @bp.get("/v1/chat/completions/<completion_id>")
    def get(completion_id: str) -> Response:
        return jsonify(store.get(owner(), completion_id)["completion"])

    @bp.post("/v1/chat/completions/<completion_id>")
    def change(completion_id: str) -> Response:
        metadata = read_body(MetadataChange, request).metadata or {}

        def edit(record: Object) -> Object:
            return {**record, "completion": {**record["completion"], "metadata": metadata}}

        return jsonify(store.change(owner(), completion_id, edit)["completion"])

    @bp.delete("/v1/chat/completions/<completion_id>")
    def delete(completion_id: str) -> Response:
        store.delete(owner(), completion_id)
        return jsonify(id=completion_id, object="chat.completion.deleted", deleted=True)

    @bp.get("/v1/chat/completions/<completion_id>/messages")
    def messages(completion_id: str) -> Response:
        given = store.get(owner(), completion_id)["messages"]
        shown = [_shown(m, f"{completion_id}-{i}") for i, m in enumerate(given)]
        return jsonify(item_page(shown, page_query(order="asc")).to_json())

    return bp


def _metadata_filter() -> dict[str, str]:
    """Return the pairs of ``metadata[KEY]=VALUE`` in the query."""
    named = ((_FILTER.fullmatch(name), value) for name, value in request.args.items())
    return {match[1]: value for match, value in named if match is not None}


def _shown(message: Mapping[str, Any], message_id: str) -> Object:
    """Return a message of the request; its text is in ``content``, also if it was given in parts."""
    content = message.get("content")
    whole = {"id": message_id, "name": None, **message, "content_parts": None}
    if isinstance(content, list):
        texts = [p["text"] for p in content if isinstance(p, dict) and "text" in p]
        whole |= {"content": "\n".join(texts) or None, "content_parts": content}
    return {**whole, "content": whole.get("content")}
