"""One key never learns of another's objects."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fake_backend import MakeApp
from model_app import close_model_app, make_model_app
from url_sweep import assert_hidden

from oxibonsai.server.access import owner_of
from oxibonsai.server.batches.records import new_batch
from oxibonsai.server.server import Server
from oxibonsai.server.stores.collection import new_id


def some_objects(app: Server, owner: str) -> dict[str, str]:
    """One object of each kind that routes name, by the argument's name."""
    store = app.store
    thread = store.threads.create(owner, {})["id"]
    run = store.runs.create(owner, {"status": "completed", "thread_id": thread}, parent=thread)
    record = {"response": {"status": "completed", "background": True}, "input": []}
    conversation = store.conversations.create(owner, {})["id"]
    batch = new_batch(new_id("batch_"), "openai", "completed", endpoint="", input_file_id="")
    batch |= {"metadata": None}
    return {
        "completion_id": store.chat_completions.create(
            owner, {"completion": {"metadata": {}}, "messages": []}
        )["id"],
        "conversation_id": conversation,
        "item_id": store.conversation_items.create(owner, {}, parent=conversation)["id"],
        "batch_id": store.batches.create(owner, batch)["id"],
        "thread_id": thread,
        "message_id": store.messages.create(owner, {"run_id": None}, parent=thread)["id"],
        "run_id": run["id"],
        "step_id": store.run_steps.create(owner, {}, parent=run["id"])["id"],
        "assistant_id": store.assistants.create(owner, {})["id"],
        "response_id": store.responses.create(owner, record)["id"],
        "file_id": store.files.upload(owner, {"filename": "a"}, io.BytesIO(b"x"))["id"],
    }


def test_ids_of_another_key_answer_as_unknown_ones(make_app: MakeApp) -> None:
    app = make_app(api_key=["a", "b"])
    foreign = some_objects(app, owner_of("a"))
    unknown = {name: new_id(i[: i.index(i[-36:])]) for name, i in foreign.items()}
    client = app.test_client()
    # 4 routes of responses, 3 of files, 3 of assistants, 16 within threads: for the ids of a key,
    # and for those of callers before there were keys.
    calls = assert_hidden(client, {"X-Api-Key": "b"}, foreign, unknown, json={})
    nobodys = some_objects(app, "anonymous")
    calls += assert_hidden(client, {"X-Api-Key": "b"}, nobodys, unknown, json={})
    assert calls >= 52
    # Its owner finds each.
    for path in (
        "threads/{thread_id}", "threads/{thread_id}/messages/{message_id}",
        "threads/{thread_id}/runs/{run_id}", "threads/{thread_id}/runs/{run_id}/steps/{step_id}",
        "chat/completions/{completion_id}", "conversations/{conversation_id}",
        "conversations/{conversation_id}/items/{item_id}", "batches/{batch_id}",
        "assistants/{assistant_id}", "responses/{response_id}", "files/{file_id}",
    ):  # fmt: skip
        own = client.get(f"/v1/{path.format(**foreign)}", headers={"X-Api-Key": "a"})
        assert own.status_code == 200, path


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


CURSORS = {
    "/v1/chat/completions": "completion_id", "/v1/batches": "batch_id",
    "/v1/conversations/{conversation_id}/items": "item_id",
    "/v1/responses": "response_id", "/v1/files": "file_id", "/v1/assistants": "assistant_id",
    "/v1/threads/{thread_id}/messages": "message_id", "/v1/threads/{thread_id}/runs": "run_id",
    "/v1/threads/{thread_id}/runs/{run_id}/steps": "step_id",
}  # fmt: skip


@pytest.mark.parametrize("side", ["after", "before"])
@pytest.mark.parametrize("path", CURSORS)
def test_a_cursor_of_another_key_answers_as_an_unknown_one(
    make_app: MakeApp, path: str, side: str
) -> None:
    app = make_app(api_key=["a", "b"])
    foreign, own = (some_objects(app, owner_of(key)) for key in "ab")
    theirs = foreign[CURSORS[path]]
    unknown = new_id(theirs[: theirs.index(theirs[-36:])])
    answers = [
        app.test_client().get(f"{path.format(**own)}?{side}={i}", headers={"X-Api-Key": "b"})
        for i in (theirs, unknown)
    ]
    assert [a.status_code for a in answers] == [400, 400]
    assert answers[0].text.replace(theirs, "ID") == answers[1].text.replace(unknown, "ID")


def test_an_id_of_another_key_in_a_body_answers_as_an_unknown_one(
    tiny_path: Path, tmp_path: Path
) -> None:
    app = make_model_app(tiny_path, tmp_path, api_key=["a", "b"])
    try:
        foreign, own = (some_objects(app, owner_of(key)) for key in "ab")
        runs = f"/v1/threads/{own['thread_id']}/runs"
        for path, field, kind in (
            ("/v1/responses", "previous_response_id", "response_id"),
            ("/v1/responses/input_tokens", "previous_response_id", "response_id"),
            ("/v1/responses/compact", "previous_response_id", "response_id"),
            ("/v1/responses", "conversation", "conversation_id"),
            ("/v1/responses/input_tokens", "conversation", "conversation_id"),
            (runs, "assistant_id", "assistant_id"),
            ("/v1/threads/runs", "assistant_id", "assistant_id"),
        ):
            theirs = foreign[kind]
            unknown = new_id(theirs[: theirs.index(theirs[-36:])])
            answers = [
                app.test_client().post(
                    path, json={"input": "x", field: i}, headers={"X-Api-Key": "b"}
                )
                for i in (theirs, unknown)
            ]
            assert [a.status_code for a in answers] in ([404, 404], [400, 400]), (path, answers)
            texts = [answers[0].text.replace(theirs, "ID"), answers[1].text.replace(unknown, "ID")]
            assert texts[0] == texts[1], path
            assert "ID" in texts[0], (path, texts[0])
    finally:
        close_model_app(app)
