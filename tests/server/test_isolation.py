"""One key never learns of another's objects."""

from __future__ import annotations

from fake_backend import MakeApp
from flask import Blueprint, Response, jsonify
from url_sweep import assert_hidden

from oxibonsai.server.access import owner, owner_of
from oxibonsai.server.app import Server
from oxibonsai.server.stores.collection import new_id


def threads_blueprint(app: Server) -> Blueprint:
    """Routes on the real store, as those of the assistants will be."""
    bp = Blueprint("threads", __name__)

    @bp.get("/threads/<thread_id>")
    def get(thread_id: str) -> Response:
        return jsonify(app.store.threads.get(owner(), thread_id))

    @bp.delete("/threads/<thread_id>")
    def delete(thread_id: str) -> Response:
        app.store.threads.delete(owner(), thread_id)
        return jsonify(deleted=True)

    @bp.get("/threads/<thread_id>/messages")
    def messages(thread_id: str) -> Response:
        return jsonify(app.store.messages.list(owner(), parent=thread_id).to_json())

    @bp.get("/threads/<thread_id>/messages/<message_id>")
    def message(thread_id: str, message_id: str) -> Response:
        return jsonify(app.store.messages.get(owner(), message_id, parent=thread_id))

    return bp


def test_ids_of_another_key_answer_as_unknown_ones(make_app: MakeApp) -> None:
    app = make_app(api_key=["a", "b"])
    app.register_blueprint(threads_blueprint(app))
    thread = app.store.threads.create(owner_of("a"), {})["id"]
    message = app.store.messages.create(owner_of("a"), {}, parent=thread)["id"]
    foreign = {"thread_id": thread, "message_id": message}
    unknown = {"thread_id": new_id("thread_"), "message_id": new_id("msg_")}
    client = app.test_client()
    assert assert_hidden(client, {"X-Api-Key": "b"}, foreign, unknown) == 4
    own = client.get(f"/threads/{thread}/messages/{message}", headers={"X-Api-Key": "a"})
    assert own.get_json()["id"] == message


def test_a_foreign_id_runs_the_same_statements_as_an_unknown_one(make_app: MakeApp) -> None:
    from sqlalchemy import event

    app = make_app(api_key=["a", "b"])
    thread = app.store.threads.create(owner_of("a"), {})["id"]
    statements: list[str] = []
    engine = app.store._database._engine
    event.listen(engine, "after_cursor_execute", lambda *args: statements.append(args[2]))
    seen = []
    for object_id in (thread, new_id("thread_")):
        for call in (
            lambda i: app.store.threads.get(owner_of("b"), i),
            lambda i: app.store.threads.delete(owner_of("b"), i),
            lambda i: app.store.messages.list(owner_of("b"), parent=i),
        ):
            statements.clear()
            try:
                call(object_id)
            except LookupError:
                seen.append(list(statements))
    assert len(seen) == 6
    assert seen[:3] == seen[3:]
    # Both stop in the index of owner and id: no row is read that only one of them has.
    with app.store._database.read() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT * FROM threads WHERE owner = 'x' AND id = 'y'"
        ).fetchall()
    assert "(owner=? AND id=?)" in str(plan)
