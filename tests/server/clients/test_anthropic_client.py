"""Anthropic's Python client: answers, streams, tools, errors."""

from __future__ import annotations

from typing import Any

import pytest
from running_server import RunningServer
from weather import CITIES, PARAMETERS

pytestmark = pytest.mark.suite


def anthropic_client(server: RunningServer) -> Any:
    anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
    return anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0,
        _strict_response_validation=True,
    )  # fmt: skip


def ask(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    values = {"model": "served", "max_tokens": 12, "messages": messages}
    # The client has no argument for it any more.
    return {**values, "extra_body": {"temperature": 0}, **fields}


def test_anthropics_client_reads_an_answer_and_the_same_as_a_stream(server: RunningServer) -> None:
    client = anthropic_client(server)
    whole = client.messages.create(**ask(system="Be brief."))
    assert whole.type == "message"
    assert whole.role == "assistant"
    assert whole.stop_reason in ("end_turn", "max_tokens")
    assert whole.usage.output_tokens > 0
    with client.messages.stream(**ask(system="Be brief.")) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "".join(b.text for b in final.content if b.type == "text")
    assert text == "".join(b.text for b in whole.content if b.type == "text")
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_anthropics_client_reads_list_content_and_stop_sequences(server: RunningServer) -> None:
    client = anthropic_client(server)
    parts = [{"type": "text", "text": "What is the capital of France?"}]
    listed = client.messages.create(**ask(messages=[{"role": "user", "content": parts}]))
    whole = client.messages.create(**ask())
    assert listed.content[0].text == whole.content[0].text
    stop = whole.content[0].text[2:5]
    stopped = client.messages.create(**ask(stop_sequences=[stop]))
    assert stopped.stop_reason == "stop_sequence"
    assert stopped.stop_sequence == stop
    assert stop not in "".join(b.text for b in stopped.content)


@pytest.mark.parametrize("streamed", [False, True])
def test_anthropics_client_calls_tools(server: RunningServer, streamed: bool) -> None:
    client = anthropic_client(server)
    tool = {"name": "weather", "description": "Weather.", "input_schema": PARAMETERS}
    request = ask(
        tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=128
    )
    if streamed:
        with client.messages.stream(**request) as stream:
            answer = stream.get_final_message()
    else:
        answer = client.messages.create(**request)
    assert answer.stop_reason == "tool_use"
    uses = [b for b in answer.content if b.type == "tool_use"]
    assert uses[0].name == "weather"
    assert uses[0].input["city"] in CITIES
    results = [{"type": "tool_result", "tool_use_id": u.id, "content": "21 degrees"} for u in uses]
    turns = [
        *ask()["messages"],
        {"role": "assistant", "content": [b.model_dump() for b in answer.content]},
        {"role": "user", "content": results},
    ]
    after = client.messages.create(**ask(messages=turns, tools=[tool]))
    assert after.stop_reason in ("end_turn", "max_tokens", "tool_use")


def test_anthropics_client_sees_its_own_errors(server: RunningServer) -> None:
    anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
    client = anthropic_client(server)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**ask(messages=[{"role": "tool", "content": "21"}]))
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**ask(extra_body={"temperature": -1}))
