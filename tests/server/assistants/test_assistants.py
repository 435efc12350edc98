"""Assistants, threads and messages on a tiny model; what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from assistant_calls import TOOL, get, post
from flask.testing import FlaskClient


def test_assistants_are_made_changed_listed_and_deleted(client: FlaskClient) -> None:
    made = post(client, "assistants", model="tiny", name="a", metadata={"k": "v"}, tools=[TOOL])
    assert (made["object"], made["name"], made["metadata"]) == ("assistant", "a", {"k": "v"})
    changed = post(client, f"assistants/{made['id']}", name="b")
    assert changed == {**made, "name": "b"}
    assert get(client, f"assistants/{made['id']}") == changed
    assert get(client, "assistants?limit=1")["data"] == [changed]
    deleted = client.delete(f"/v1/assistants/{made['id']}").get_json()
    assert deleted == {"id": made["id"], "object": "assistant.deleted", "deleted": True}
    get(client, f"assistants/{made['id']}", 404)


def test_a_field_of_an_assistant_is_cleared_with_null(client: FlaskClient) -> None:
    form = {"type": "json_object"}
    fields = {"name": "a", "metadata": {"k": "v"}, "temperature": 0.5, "response_format": form}
    made = post(client, "assistants", model="tiny", **fields)
    plain = post(client, "assistants", model="tiny")
    cleared = post(client, f"assistants/{made['id']}", **dict.fromkeys(fields))
    own = ("id", "created_at")
    assert {k: v for k, v in cleared.items() if k not in own} == {
        k: v for k, v in plain.items() if k not in own
    }
    # Without a model there is no assistant.
    error = post(client, f"assistants/{made['id']}", 400, model=None)["error"]
    assert error["param"] == "model"
    assert get(client, f"assistants/{made['id']}")["model"] == "tiny"


@pytest.mark.parametrize(
    "tools",
    [[TOOL, TOOL], [{"type": "function", "function": {"name": "two words"}}],
     [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]],
)  # fmt: skip
def test_an_assistant_whose_runs_would_be_refused_is_refused(
    client: FlaskClient, assistant: str, tools: list[Any]
) -> None:
    assert (
        "tools[" in post(client, "assistants", 400, model="tiny", tools=tools)["error"]["message"]
    )
    post(client, f"assistants/{assistant}", 400, tools=tools)
    kept = get(client, f"assistants/{assistant}")["tools"]
    assert [t["function"]["name"] for t in kept] == ["weather"]


def test_threads_and_their_messages(client: FlaskClient) -> None:
    thread = post(client, "threads", metadata={"k": "v"})
    path = f"threads/{thread['id']}"
    assert thread["object"] == "thread"
    assert "active_run" not in thread
    assert post(client, path, metadata={"k": "w"})["metadata"] == {"k": "w"}
    ids = [post(client, f"{path}/messages", role="user", content=f"m{i}")["id"] for i in range(3)]
    listed = get(client, f"{path}/messages")
    assert [m["id"] for m in listed["data"]] == ids[::-1]
    message = get(client, f"{path}/messages/{ids[0]}")
    assert message["content"] == [{"type": "text", "text": {"value": "m0", "annotations": []}}]
    assert message["status"] == "completed"
    assert post(client, f"{path}/messages/{ids[0]}", metadata={"a": "b"})["metadata"] == {"a": "b"}
    assert client.delete(f"/v1/{path}/messages/{ids[0]}").get_json()["deleted"] is True
    get(client, f"{path}/messages/{ids[0]}", 404)
    assert client.delete(f"/v1/{path}").get_json()["object"] == "thread.deleted"
    get(client, path, 404)
    get(client, f"{path}/messages", 404)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_thread_is_made_with_a_body_or_without(client: FlaskClient, chunked: bool) -> None:
    # As a server hands on a body in chunks: without its length.
    chunks = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""} if chunked else {}
    given = {"content_type": "application/json", "environ_overrides": chunks}
    made = client.post("/v1/threads", data=b'{"metadata": {"a": "b"}}', **given).get_json()
    assert made["metadata"] == {"a": "b"}
    empty = client.post("/v1/threads", environ_overrides=chunks)
    assert (empty.status_code, empty.get_json()["metadata"]) == (200, {})
    assert client.post("/v1/threads", data=b"[]", **given).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("assistants", {}),
        ("assistants", {"model": "tiny", "tools": [{"type": "code_interpreter"}]}),
        ("assistants", {"model": "tiny", "temperature": 3}),
        ("assistants", {"model": "tiny", "name": "x" * 257}),
        ("threads", {"messages": [{"role": "system", "content": "x"}]}),
        ("threads", {"messages": [{"role": "user", "content": []}]}),
        ("threads", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        ("threads", {"metadata": {"a": 1}}),
        ("threads/runs", {}),
        ("threads/{thread}/runs", {}),
        ("threads/{thread}/messages", {"role": "user"}),
        ("threads/{thread}/messages", {"role": "user", "content": "x", "attachments": [{}]}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    client: FlaskClient, thread: str, path: str, body: dict[str, Any]
) -> None:
    post(client, path.format(thread=thread), 400, **body)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("response_format", "json", ""),
        ("response_format", {"type": "json_schema"}, ".json_schema"),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}},
         ".json_schema.schema"),
        ("tool_choice", "maybe", ""),
        ("tool_choice", {"type": "function"}, ".function"),
        ("tool_choice", {"type": "function", "function": {"name": 1}}, ".function.name"),
        ("tool_choice", {"type": "file_search"}, ".type"),
    ],
)  # fmt: skip
def test_a_field_of_several_forms_is_refused_by_what_is_wrong_in_the_form_that_was_meant(
    client: FlaskClient, field: str, value: Any, param: str
) -> None:
    error = post(client, "threads/runs", 400, assistant_id="asst_x", **{field: value})["error"]
    assert error["param"] == field + param
    assert error["message"].startswith(f"{field}{param}: ")


@pytest.mark.parametrize("kind", ["image_url", "image_file"])
def test_a_thread_holds_no_pictures(client: FlaskClient, thread: str, kind: str) -> None:
    parts = [{"type": "text", "text": "What?"}, {"type": kind, kind: {"url": "data:"}}]
    path = f"threads/{thread}/messages"
    error = post(client, path, 400, role="user", content=parts)["error"]
    assert "threads hold no pictures in this version" in error["message"]


def test_a_run_of_an_unknown_assistant_is_not_found(client: FlaskClient, thread: str) -> None:
    for path in ("threads/runs", f"threads/{thread}/runs"):
        error = post(client, path, 404, assistant_id="asst_none")["error"]
        assert "asst_none" in error["message"]
