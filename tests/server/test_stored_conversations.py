"""``/v1/conversations``, as OpenAI's client uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from official import openai_client
from tool_template import TEMPLATE

from oxibonsai.server.server import Server

USER = {"type": "message", "role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), chat_template=TEMPLATE)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> Any:
    return openai_client(app)


def texts(items: Any) -> list[tuple[str, str]]:
    return [(item.role, item.content[0].text) for item in items]


def respond(client: Any, **fields: Any) -> Any:
    given = {"model": "tiny", "max_output_tokens": 3, "temperature": 0, **fields}
    return client.responses.create(**given, extra_body={"ignore_eos": True})


def test_a_conversation_is_created_changed_and_deleted(client: Any) -> None:
    import openai

    made = client.conversations.create(items=[USER], metadata={"topic": "a"})
    assert made.object == "conversation"
    assert made.id.startswith("conv_")
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"topic": "b"})
    assert (changed.id, changed.metadata) == (made.id, {"topic": "b"})
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.list(made.id)


def test_items_are_added_listed_found_and_deleted(client: Any) -> None:
    conversation = client.conversations.create()
    assert client.conversations.items.list(conversation.id).data == []
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "sunny"}
    added = client.conversations.items.create(conversation.id, items=[USER, call, output])
    assert [item.type for item in added.data] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert len({item.id for item in added.data}) == 3
    newest_first = client.conversations.items.list(conversation.id)
    assert [i.id for i in newest_first] == [i.id for i in added.data][::-1]
    first = client.conversations.items.list(conversation.id, order="asc", limit=1)
    assert [i.id for i in first.data] == [added.data[0].id]
    assert first.has_more
    found = client.conversations.items.retrieve(added.data[1].id, conversation_id=conversation.id)
    assert found.arguments == "{}"
    left = client.conversations.items.delete(added.data[1].id, conversation_id=conversation.id)
    assert left.id == conversation.id
    assert len(client.conversations.items.list(conversation.id).data) == 2


def test_an_item_can_be_in_two_conversations(client: Any) -> None:
    item = {**USER, "id": "msg_1"}
    ids = {client.conversations.create(items=[item]).id for _ in range(2)}
    for conversation in ids:
        assert texts(client.conversations.items.list(conversation)) == [("user", "hi")]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_reads_its_conversation_and_continues_it(client: Any, streamed: bool) -> None:
    conversation = client.conversations.create(items=[USER]).id
    answer = respond(client, input="and now?", conversation=conversation, stream=streamed)
    if streamed:
        answer = list(answer)[-1].response
    assert answer.conversation.id == conversation
    # The prompt is that of a request with all the items.
    same = respond(client, input=[USER, {**USER, "content": "and now?"}])
    assert answer.usage.input_tokens == same.usage.input_tokens
    assert answer.output_text == same.output_text
    items = list(client.conversations.items.list(conversation, order="asc"))
    assert texts(items) == [("user", "hi"), ("user", "and now?"), ("assistant", same.output_text)]
    assert items[-1].id == answer.output[0].id


def test_a_background_response_continues_its_conversation(app: Server, client: Any) -> None:
    conversation = client.conversations.create().id
    answer = respond(client, input="hi", conversation=conversation, background=True)
    list(client.responses.retrieve(answer.id, stream=True))
    assert len(client.conversations.items.list(conversation).data) == 2


def test_conversations_count_and_compact_too(client: Any, app: Server) -> None:
    conversation = client.conversations.create(items=[USER]).id
    counted = client.responses.input_tokens.count(conversation=conversation, model="tiny")
    same = client.responses.input_tokens.count(input=[USER], model="tiny")
    assert counted.input_tokens == same.input_tokens > 0


@pytest.fixture
def plain(app: Server) -> FlaskClient:
    return app.test_client()


def test_what_can_not_be_is_refused(plain: FlaskClient) -> None:
    both = {"input": "x", "conversation": "conv_1", "previous_response_id": "resp_1"}
    answer = plain.post("/v1/responses", json=both)
    assert answer.status_code == 400
    assert "exclude each other" in answer.get_json()["error"]["message"]
    unknown = plain.post("/v1/responses", json={"input": "x", "conversation": {"id": "conv_1"}})
    assert unknown.status_code == 404
    assert "conversation" in unknown.get_json()["error"]["message"]
    wrong = plain.post("/v1/conversations", json={"items": [{"type": "web_search_call"}]})
    assert wrong.status_code == 400
    many = plain.post("/v1/conversations", json={"items": [USER] * 21})
    assert many.status_code == 400
