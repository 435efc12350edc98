"""Anthropic's client, and an agent's tool loop of LangChain."""

from __future__ import annotations

from typing import Any

import pytest
from running_server import RunningServer

pytestmark = pytest.mark.suite

CITIES = {"type": "string", "enum": ["Paris", "Rome"]}
PARAMETERS = {
    "type": "object",
    "properties": {"city": CITIES},
    "required": ["city"],
    "additionalProperties": False,  # else a model of random weights makes up names without end
}


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
    assert uses[0].input["city"] in CITIES["enum"]
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


def test_langchain_runs_a_tool_loop(server: RunningServer) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    asked: list[str] = []

    @tool("weather", args_schema=PARAMETERS)
    def weather(city: str) -> str:
        """Says the weather of a city."""
        asked.append(city)
        return "21 degrees"

    model = langchain.ChatOpenAI(
        base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", model="served",
        temperature=0, max_tokens=128, max_retries=0,
    )  # fmt: skip
    messages: list[Any] = [HumanMessage("What is the weather in Rome?")]
    forced = model.bind_tools([weather], tool_choice="required")
    answer = forced.invoke(messages)
    assert answer.tool_calls
    messages.append(answer)
    for call in answer.tool_calls:
        messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))
    assert set(asked) <= set(CITIES["enum"])
    last = model.invoke(messages)
    assert last.usage_metadata["output_tokens"] > 0
    pieces = list(forced.stream(messages[:1]))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert [c["args"] for c in whole.tool_calls] == [c["args"] for c in answer.tool_calls]
