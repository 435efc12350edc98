"""``/v1/messages`` on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from named_events import read_events
from tool_template import CITY, TEMPLATE, THINKING_TEMPLATE

from oxibonsai.errors import CapacityError
from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.server.anthropic.blocks import BlockWriter
from oxibonsai.server.anthropic.request import chat_request
from oxibonsai.server.anthropic.schemas import CountRequest
from oxibonsai.server.server import Server

TOOL = {"name": "weather", "description": "What it is like.", "input_schema": CITY}
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("state")
    made = make_model_app(tiny_path, folder, chat_template=TEMPLATE, api_key="key")
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    client = app.test_client()
    client.environ_base["HTTP_X_API_KEY"] = "key"
    return client


def ask(client: FlaskClient, **fields: Any) -> Any:
    body = {"model": "tiny", "max_tokens": 8, "messages": [USER], "temperature": 0, **fields}
    answer = client.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    return read_events(answer.text) if fields.get("stream") else answer.get_json()


def assert_anthropic_error(answer: Any, status: int, kind: str) -> None:
    assert answer.status_code == status
    body = answer.get_json()
    assert body["type"] == "error"
    assert body["error"]["type"] == kind
    assert body["error"]["message"]
    assert body["request_id"] == answer.headers["X-Request-Id"]


def test_a_message_has_every_member(client: FlaskClient) -> None:
    message = ask(client, system="Be brief.")
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "tiny")
    (block,) = message["content"]
    assert block["type"] == "text"
    assert block["text"]
    assert message["stop_reason"] == "max_tokens"
    usage = message["usage"]
    counted = client.post(
        "/v1/messages/count_tokens",
        json={"model": "tiny", "system": "Be brief.", "messages": [USER]},
    ).get_json()
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counted == {"input_tokens": read}
    assert usage["output_tokens"] == 8


def test_a_text_that_cites_nothing_has_no_citations(client: FlaskClient) -> None:
    """Clients that check answers take a list or nothing, not null."""
    (block,) = ask(client)["content"]
    assert set(block) == {"type", "text"}
    starts = [d for name, d in ask(client, stream=True) if name == "content_block_start"]
    assert [start["content_block"] for start in starts] == [{"type": "text", "text": ""}]


def test_a_stream_tells_the_same_as_the_answer_at_once(client: FlaskClient) -> None:
    whole = ask(client)
    events = ask(client, stream=True)
    assert all(name == d["type"] for name, d in events)
    kinds = [name for name, _ in events if name != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    text = "".join(d["delta"]["text"] for name, d in events if name == "content_block_delta")
    assert text == whole["content"][0]["text"]
    last = events[-2][1]
    assert last["delta"]["stop_reason"] == "max_tokens"
    assert last["usage"]["output_tokens"] == 8
    assert events[0][1]["message"]["content"] == []


def test_a_stop_sequence_ends_the_text_and_is_named(client: FlaskClient) -> None:
    text = ask(client, max_tokens=12)["content"][0]["text"]
    stop = text[3:6]
    message = ask(client, max_tokens=12, stop_sequences=["never there", stop])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", stop)
    assert message["content"][0]["text"] == text[: text.index(stop)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_call_and_its_result(client: FlaskClient, choice: dict[str, Any], stream: bool) -> None:
    choice = {**choice, "disable_parallel_tool_use": True}
    given = {"tools": [TOOL], "max_tokens": 200}
    made = ask(client, **given, tool_choice=choice, stream=stream)
    if stream:
        pieces = [d["delta"] for name, d in made if name == "content_block_delta"]
        assert {p["type"] for p in pieces} == {"input_json_delta"}
        assert json.loads("".join(p["partial_json"] for p in pieces)) == {"city": "Rome"}
        (use,) = [d["content_block"] for name, d in made if name == "content_block_start"]
        assert made[-2][1]["delta"]["stop_reason"] == "tool_use"
        use = {**use, "input": {"city": "Rome"}}
    else:
        assert made["stop_reason"] == "tool_use"
        (use,) = made["content"]
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "weather", {"city": "Rome"})
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "sunny"}
    messages = [
        USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]},
    ]  # fmt: skip
    assert ask(client, messages=messages, tools=[TOOL])["content"]


def test_thoughts_come_first(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, chat_template=THINKING_TEMPLATE)
    thinking = {"type": "enabled", "budget_tokens": 6}
    message = ask(app.test_client(), thinking=thinking, max_tokens=60)
    events = ask(app.test_client(), thinking=thinking, max_tokens=60, stream=True)
    close_model_app(app)
    block = message["content"][0]
    assert block["type"] == "thinking"
    assert block["thinking"]
    assert block["signature"]
    pieces = [d["delta"] for name, d in events if name == "content_block_delta"]
    thought = "".join(p["thinking"] for p in pieces if p["type"] == "thinking_delta")
    assert thought == block["thinking"]
    assert {"type": "signature_delta", "signature": block["signature"]} in pieces


def test_thoughts_can_be_omitted(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, chat_template=THINKING_TEMPLATE)
    thinking = {"type": "enabled", "budget_tokens": 6}
    omitted = {**thinking, "display": "omitted"}
    whole = ask(app.test_client(), thinking=thinking, max_tokens=60)["content"]
    short = ask(app.test_client(), thinking=omitted, max_tokens=60)["content"]
    events = ask(app.test_client(), thinking=omitted, max_tokens=60, stream=True)
    assert short == [{**whole[0], "thinking": ""}, *whole[1:]]
    pieces = [d["delta"] for name, d in events if name == "content_block_delta"]
    assert pieces[0] == {"type": "signature_delta", "signature": whole[0]["signature"]}
    assert "thinking_delta" not in {p["type"] for p in pieces}
    ask(app.test_client(), messages=[USER, {"role": "assistant", "content": short}, USER])
    close_model_app(app)


def test_a_model_that_knows_no_reasoning_answers_at_once(client: FlaskClient) -> None:
    message = ask(client, thinking={"type": "enabled", "budget_tokens": 1024})
    assert [b["type"] for b in message["content"]] == ["text"]


def test_servers_of_tools_are_refused_by_name(client: FlaskClient) -> None:
    body = {"model": "tiny", "max_tokens": 2, "messages": [USER]}
    servers = [{"type": "url", "name": "s", "url": "https://example.com/sse"}]
    refused = client.post("/v1/messages", json={**body, "mcp_servers": servers})
    assert refused.status_code == 400
    assert "mcp_servers is not supported" in refused.get_json()["error"]["message"]
    assert client.post("/v1/messages", json={**body, "mcp_servers": []}).status_code == 200


def test_an_answer_follows_its_schema(client: FlaskClient) -> None:
    form = {"format": {"type": "json_schema", "schema": CITY}}
    message = ask(client, output_config=form, max_tokens=100)
    assert json.loads(message["content"][0]["text"]) == {"city": "Rome"}


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None},
        {"max_tokens": 0},
        {"model": None},
        {"messages": None},
        {"messages": [{"role": "nobody", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]},
        {"messages": [{"role": "assistant", "content": [
            {"type": "tool_result", "tool_use_id": "x"}]}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}},
        {"tools": [TOOL], "tool_choice": {"type": "tool"}},
        {"stop_sequences": [""]},
        {"temperature": 3},
        {"top_p": 2},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(
    client: FlaskClient, fields: dict[str, Any]
) -> None:
    body = {"model": "tiny", "max_tokens": 8, "messages": [USER], **fields}
    answer = client.post("/v1/messages", json={k: v for k, v in body.items() if v is not None})
    assert_anthropic_error(answer, 400, "invalid_request_error")


def test_no_messages_are_a_user_who_says_nothing(client: FlaskClient) -> None:
    empty = ask(client, messages=[])
    assert empty["content"] == ask(client, messages=[{"role": "user", "content": ""}])["content"]


def test_an_image_is_refused_by_name(client: FlaskClient) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    for block in (image, result):
        body = {
            "model": "tiny",
            "max_tokens": 2,
            "messages": [{"role": "user", "content": [block]}],
        }
        answer = client.post("/v1/messages", json=body)
        assert_anthropic_error(answer, 400, "invalid_request_error")
        assert "image input is not supported" in answer.get_json()["error"]["message"]


def test_every_error_has_anthropics_shape(app: Server, client: FlaskClient) -> None:
    stranger = app.test_client()
    answer = stranger.post("/v1/messages", json={})
    assert_anthropic_error(answer, 401, "authentication_error")
    answer = client.post("/v1/messages", data="{", content_type="application/json")
    assert_anthropic_error(answer, 400, "invalid_request_error")
    answer = client.post("/v1/messages", json={"x": "y" * 17_000_000})
    assert_anthropic_error(answer, 413, "request_too_large")


def test_an_overload_says_so(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise CapacityError("too many requests wait")

    monkeypatch.setattr(client.application.submitter, "chat", refuse)
    body = {"model": "tiny", "max_tokens": 8, "messages": [USER]}
    answer = client.post("/v1/messages", json=body)
    assert_anthropic_error(answer, 503, "overloaded_error")
    assert int(answer.headers["Retry-After"]) >= 1


def test_blocks_become_messages_of_a_chat() -> None:
    body = {
        "model": "tiny",
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
        "messages": [
            USER,
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Rome"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "is_error": True,
                 "content": [{"type": "text", "text": "no"}]},
                {"type": "text", "text": "Again."},
            ]},
        ],
        "tools": [TOOL],
    }  # fmt: skip
    asked = chat_request(CountRequest.model_validate(body), None)
    system, _, assistant, result, user = asked.messages
    assert system["content"] == "Be\n\nbrief."
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
    assert result == {"role": "tool", "tool_call_id": "c", "content": "Error: no"}
    assert user == {"role": "user", "content": "Again."}
    assert asked.tools[0]["function"]["parameters"] == CITY


def test_a_call_that_broke_off_has_no_input() -> None:
    writer = BlockWriter()
    events = writer.feed(Delta(content="a"))
    events += writer.feed(Delta(tool_call=ToolCallDelta(0, "c", "f", '{"x":')))
    events += writer.finish()
    assert [b["type"] for b in writer.blocks] == ["text", "tool_use"]
    assert writer.blocks[1]["input"] == {}
    assert [e["type"] for e in events] == [
        "content_block_start", "content_block_delta", "content_block_stop",
    ] * 2  # fmt: skip


def test_a_field_that_is_needed_is_missing_where_it_is_null(client: FlaskClient) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": None}
    answer = client.post("/v1/messages", json=body)
    assert answer.status_code == 400
    assert answer.get_json()["error"]["message"] == "max_tokens: Field required."
