"""``/v1/threads`` and the messages in them."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import owner
from oxibonsai.server.openai.assistants.objects import (
    changed_assistant,
    new_assistant,
    new_message,
    new_thread,
    view,
)
from oxibonsai.server.openai.assistants.run_service import RunService
from oxibonsai.server.openai.schemas.assistants import (
    AssistantChange,
    AssistantCreate,
    MessageCreate,
    MetadataChange,
    ThreadChange,
    ThreadCreate,
)
from oxibonsai.server.paging import list_page, page_query
from oxibonsai.server.storage_limit import stores_objects
from oxibonsai.server.stores import Collection, Object, Store
from oxibonsai.server.validation import read_body


def create_thread(store: Store, owner_id: str, body: ThreadCreate) -> Object:
    """Return a thread with its first messages."""
    thread = store.threads.create(owner_id, new_thread(body))
    for message in body.messages or ():
        store.messages.create(owner_id, new_message(thread["id"], message), parent=thread["id"])
    return thread


def threads_blueprint(store: Store, runs: RunService) -> Blueprint:
    """Return the routes of threads."""
    bp = Blueprint("threads", __name__)

    @bp.post("/v1/threads")
    @stores_objects
    def create() -> Response:
        # A body in chunks has no length beforehand; a form is no JSON, and is not read.
        is_form = request.mimetype == "multipart/form-data"
        is_given = is_form or request.get_data()
        body = read_body(ThreadCreate, request) if is_given else ThreadCreate()
        return jsonify(create_thread(store, owner(), body))

    @bp.get("/v1/threads/<thread_id>")
    def get(thread_id: str) -> Response:
        return jsonify(view(store.threads.get(owner(), thread_id)))

    @bp.post("/v1/threads/<thread_id>")
    def change(thread_id: str) -> Response:
        store.threads.get(owner(), thread_id)
        given = read_body(ThreadChange, request).model_dump(exclude_none=True)
        return jsonify(view(store.threads.change(owner(), thread_id, lambda t: {**t, **given})))

    @bp.delete("/v1/threads/<thread_id>")
    def delete(thread_id: str) -> Response:
        thread = store.threads.get(owner(), thread_id)
        store.threads.delete(owner(), thread_id)
        runs.forget_thread(owner(), thread)
        return jsonify(id=thread_id, object="thread.deleted", deleted=True)

    return bp


def thread_messages_blueprint(store: Store, runs: RunService) -> Blueprint:
    """Return the routes of messages."""
    bp = Blueprint("thread_messages", __name__, url_prefix="/v1/threads/<thread_id>/messages")

    @bp.post("")
    @stores_objects
    def create(thread_id: str) -> Response:
        thread = store.threads.get(owner(), thread_id)
        body = read_body(MessageCreate, request)
        runs.check_idle(owner(), thread, "Can't add messages to")
        message = new_message(thread_id, body)
        return jsonify(store.messages.create(owner(), message, parent=thread_id))

    @bp.get("")
    def list_messages(thread_id: str) -> Response:
        run_id = request.args.get("run_id")
        keep = None if run_id is None else lambda m: m["run_id"] == run_id
        page = list_page(store.messages, owner(), page_query(), parent=thread_id, keep=keep)
        return jsonify(page.to_json())

    @bp.get("/<message_id>")
    def get(thread_id: str, message_id: str) -> Response:
        return jsonify(store.messages.get(owner(), message_id, parent=thread_id))

    @bp.post("/<message_id>")
    def change(thread_id: str, message_id: str) -> Response:
        store.messages.get(owner(), message_id, parent=thread_id)
        given = read_body(MetadataChange, request).model_dump(exclude_none=True)
        changed = store.messages.change(
            owner(), message_id, lambda m: {**m, **given}, parent=thread_id
        )
        return jsonify(changed)

    @bp.delete("/<message_id>")
    def delete(thread_id: str, message_id: str) -> Response:
        thread = store.threads.get(owner(), thread_id)
        store.messages.get(owner(), message_id, parent=thread_id)
        runs.check_idle(owner(), thread, "Can't delete messages of")
        store.messages.delete(owner(), message_id, parent=thread_id)
        return jsonify(id=message_id, object="thread.message.deleted", deleted=True)

    return bp


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
