"""Tools of models whose template knows none, through each API that has tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from named_events import read_events
from tool_template import CITY

import tiny_model

# No word of tools; roles alternate and there is no system message, as Gemma's template wants it.
TEMPLATE = """
{%- for m in messages %}
{%- if m.role != ('assistant' if loop.index0 % 2 else 'user') %}
{{- raise_exception('roles must alternate') }}{% endif -%}
<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"""
ROME = {"city": "Rome"}
ASKED = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    folder = tmp_path_factory.mktemp("generic")
    tiny_model.write(folder / "tiny.gguf", changes={"qwen3.context_length": (4096, "u32")})
    app = make_model_app(folder / "tiny.gguf", folder, chat_template=TEMPLATE)
    yield app.test_client()
    close_model_app(app)


def post(client: FlaskClient, path: str, **body: Any) -> Any:
    answer = client.post(path, json={"model": "tiny", **body})
    assert answer.status_code == 200, answer.text
    if body.get("stream"):
        return [data for _, data in read_events(answer.text)]
    return answer.get_json()


def message(client: FlaskClient, *messages: Any, **fields: Any) -> Any:
    tool = {"name": "weather", "description": "Says the weather.", "input_schema": CITY}
    body = {"messages": [ASKED, *messages], "max_tokens": 200, "tools": [tool], "seed": 3}
    return post(client, "/v1/messages", **body, **fields)


def response(client: FlaskClient, given: Any, **fields: Any) -> Any:
    tool = {"type": "function", "name": "weather", "parameters": CITY}
    tool["description"] = "Says the weather."
    body = {"input": given, "max_output_tokens": 200, "tools": [tool], "seed": 3}
    return post(client, "/v1/responses", **body, **fields)


FORCED = {"type": "any", "disable_parallel_tool_use": True}


def test_anthropics_api_calls_and_reads_the_result(client: FlaskClient) -> None:
    answer = message(client, tool_choice=FORCED)
    assert answer["stop_reason"] == "tool_use"
    (use,) = answer["content"]
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "weather", ROME)
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "sunny"}
    turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    after = message(client, *turns, tool_choice={"type": "none"})
    assert {block["type"] for block in after["content"]} == {"text"}
    # What the model reads is what chat completions give it for the same conversation.
    call = {"name": "weather", "arguments": json.dumps(ROME)}
    chat = [
        ASKED,
        {"role": "assistant", "tool_calls": [{"type": "function", "id": "c", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    same = post(client, "/v1/chat/completions/input_tokens", messages=chat)
    usage = after["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert read == same["input_tokens"]


def test_a_stream_of_anthropics_api_has_the_call_and_no_text(client: FlaskClient) -> None:
    events = message(client, tool_choice=FORCED, stream=True)
    begun = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [(block["type"], block["name"]) for block in begun] == [("tool_use", "weather")]
    pieces = [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == ROME


def test_responses_call_and_read_the_result(client: FlaskClient) -> None:
    answer = response(client, "hi", tool_choice="required", parallel_tool_calls=False)
    assert answer["status"] == "completed"
    (call,) = answer["output"]
    assert (call["type"], call["name"]) == ("function_call", "weather")
    assert json.loads(call["arguments"]) == ROME
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    fields: dict[str, Any] = {"tool_choice": "none", "max_output_tokens": 8}
    chained = response_after(client, [result], previous_response_id=answer["id"], **fields)
    whole = response_after(client, [{**ASKED, "type": "message"}, call, result], **fields)
    assert chained["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert chained["output"][0]["content"] == whole["output"][0]["content"]


def response_after(client: FlaskClient, given: list[Any], **fields: Any) -> Any:
    return post(client, "/v1/responses", input=given, seed=3, ignore_eos=True, **fields)


def test_a_stream_of_responses_has_the_call_and_no_text(client: FlaskClient) -> None:
    events = response(client, "hi", tool_choice="required", parallel_tool_calls=False, stream=True)
    kinds = {event["type"] for event in events}
    assert "response.function_call_arguments.done" in kinds
    assert "response.output_text.delta" not in kinds
    assert json.loads(events[-1]["response"]["output"][0]["arguments"]) == ROME


def test_the_tools_are_part_of_every_prompt(client: FlaskClient) -> None:
    function = {"name": "weather", "description": "Says the weather.", "parameters": CITY}
    chat = {"messages": [ASKED], "tools": [{"type": "function", "function": function}]}
    flat = {"input": "hi", "tools": [{"type": "function", **function}]}
    theirs = {"name": "weather", "description": "Says the weather.", "input_schema": CITY}
    counts = {
        post(client, "/v1/chat/completions/input_tokens", **chat)["input_tokens"],
        post(client, "/v1/responses/input_tokens", **flat)["input_tokens"],
        post(client, "/v1/messages/count_tokens", messages=[ASKED], tools=[theirs])["input_tokens"],
    }
    (count,) = counts
    plain = post(client, "/v1/messages/count_tokens", messages=[ASKED])
    assert count > plain["input_tokens"] + len("Says the weather.")
