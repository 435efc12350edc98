"""Tools for models whose chat template knows none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import oxibonsai
import tiny_model
from oxibonsai import RequestError, SamplingParams
from oxibonsai.chat import ChatRequest, answer, prepare, render
from oxibonsai.chat.generic_tools import tool_format_of
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine import Engine
from oxibonsai.output import OutputParser
from oxibonsai.output.tools import GenericFormat, call_ids, read_tools

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"type": "boolean"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
ASK: list[dict[str, Any]] = [{"role": "user", "content": "ab"}]
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "id": "call_1", "function": {"name": "add", "arguments": '{"a": 1}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
DRAWN = SamplingParams(temperature=1, top_k=0, top_p=1, seed=1, max_tokens=300)
# As Gemma's: roles alternate, and there is no system message.
STRICT = """
{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- set wanted = 'assistant' if loop.index0 % 2 else 'user' %}
{%- if m.role != wanted %}{{ raise_exception('roles must alternate') }}{% endif -%}
<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"""
PLAIN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</{{ m['role'] }}>{% endfor %}"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("generic") / "tiny.gguf"
    tiny_model.write(path, changes={"qwen3.context_length": (2048, "u32")})
    return oxibonsai.load(path)


@pytest.fixture(scope="module")
def plain(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def reply_of(engine: Engine, choice: Any, template: str = PLAIN, **fields: Any) -> Any:
    request = ChatRequest(ASK, tools=[TOOL], tool_choice=choice, **fields)
    reply = answer(engine, request, DRAWN, template=ChatTemplate(template))
    list(reply)
    return reply


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
@pytest.mark.parametrize("template", [PLAIN, STRICT], ids=["plain", "strict"])
def test_a_forced_call_fits_its_schema(engine: Engine, choice: Any, template: str) -> None:
    reply = reply_of(engine, choice, template, parallel_tool_calls=False)
    (call,) = reply.reply.tool_calls
    assert call.name == "add"
    jsonschema.validate(json.loads(call.arguments), TOOL["function"]["parameters"])
    assert reply.reply.content == ""
    assert reply.finish_reason == "tool_calls"


def test_an_answer_needs_no_call(engine: Engine) -> None:
    reply = reply_of(engine, "auto")
    assert reply.reply.tool_calls == []
    assert reply.reply.content


def test_the_prompt_describes_the_tools(plain: Engine) -> None:
    request = ChatRequest([{"role": "system", "content": "Be brief."}, *ASK], tools=[TOOL])
    prompt = render(plain, request, template=ChatTemplate(PLAIN))
    system, user = prompt.split("</system>")
    assert system.startswith("<system>Be brief.\n\nYou can call these functions:")
    assert '"description": "Adds two numbers."' in system
    assert '"tool_calls"' in system
    assert user == "<user>ab</user>"
    # Without a system message of the client there is one all the same.
    assert render(plain, ChatRequest(ASK, tools=[TOOL]), template=ChatTemplate(PLAIN)).startswith(
        "<system>You can call"
    )
    for without in (ChatRequest(ASK), ChatRequest(ASK, tools=[TOOL], tool_choice="none")):
        assert render(plain, without, template=ChatTemplate(PLAIN)) == "<user>ab</user>"


def test_where_there_is_no_system_message_the_user_describes_them(plain: Engine) -> None:
    prompt = render(plain, ChatRequest(ASK, tools=[TOOL]), template=ChatTemplate(STRICT))
    assert prompt.startswith("<user>You can call these functions:")
    assert prompt.endswith("\n\nab</user>")


def test_earlier_calls_and_their_results_are_text(plain: Engine) -> None:
    second = {"role": "user", "content": "and?"}
    messages = [*ASK, CALL, RESULT, {**RESULT, "content": "3"}, second]
    prompt = render(plain, ChatRequest(messages), template=ChatTemplate(STRICT))
    assert prompt == (
        '<user>ab</user><assistant>{"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}'
        '</assistant><user>{"tool": "add", "result": "2"}\n\n{"tool": "add", "result": "3"}'
        "\n\nand?</user>"
    )


def test_a_template_that_writes_results_keeps_their_role(plain: Engine) -> None:
    template = PLAIN + "{# it knows 'tool' #}"
    prompt = render(plain, ChatRequest([*ASK, CALL, RESULT]), template=ChatTemplate(template))
    assert prompt.endswith("<tool>2</tool>")


@pytest.mark.parametrize(
    "source", [PLAIN + "{{ tools }}", PLAIN + "{{ messages[0].tool_calls }}", PLAIN + "<tool_call>"]
)
def test_a_template_that_knows_tools_is_left_alone(source: str) -> None:
    assert not isinstance(tool_format_of(ChatTemplate(source)), GenericFormat)


def test_a_format_that_is_not_read_is_refused_with_a_remedy(plain: Engine) -> None:
    template = ChatTemplate(PLAIN + "{% if tools %}my own format{% endif %}")
    with pytest.raises(RequestError, match="--chat-template chatml"):
        prepare(plain, ChatRequest(ASK, tools=[TOOL]), template=template)


def parsed(text: str, size: int) -> OutputParser:
    parser = OutputParser(GenericFormat(), read_tools([TOOL]), ids=call_ids("seed"))
    for start in range(0, len(text), size):
        parser.feed(text[start : start + size])
    parser.finish()
    return parser


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('{"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}', ['{"a": 1}'], ""),
        (
            ' { "tool_calls":[ {"name": "add", "arguments": {}} ,'
            ' {"arguments": {"a": 2}, "name": "add"} ] } ',
            ["{}", '{"a": 2}'],
            "",
        ),
        ("just text", [], "just text"),
        ('{"other": [1]}', [], '{"other": [1]}'),
        ('{"tool_calls": [{"name": "unknown", "arguments": {}}]}', [],
         '{"tool_calls": [{"name": "unknown", "arguments": {}}]}'),
        ('Say {"tool_calls": [{"name": "add", "arguments": {}}]}', [],
         'Say {"tool_calls": [{"name": "add", "arguments": {}}]}'),
    ],
)  # fmt: skip
def test_the_whole_text_is_calls_or_an_answer(
    text: str, calls: list[str], content: str, size: int
) -> None:
    reply = parsed(text, size).reply
    assert [call.arguments for call in reply.tool_calls] == calls
    assert reply.content == content


def test_what_is_written_back_is_read_again() -> None:
    text = GenericFormat().spell([("add", {"a": 1}), ("add", {"b": "é"})])
    reply = parsed(text, 1).reply
    assert [json.loads(call.arguments) for call in reply.tool_calls] == [{"a": 1}, {"b": "é"}]
