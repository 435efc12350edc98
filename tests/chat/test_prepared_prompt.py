"""Answers of a conversation: reasoning beside structures and calls, and hostile requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
import tiny_model
from oxibonsai import RequestError, SamplingParams
from oxibonsai.chat import ChatReply, ChatRequest, answer, prepare
from oxibonsai.engine import Engine
from oxibonsai.structured import Structure

_TEMPLATE = """{%- if tools %}<|im_start|>system
<tools>{{ tools | tojson }}</tools> <tool_call></tool_call><|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>
{% endif %}{% if shout %}!{% endif %}{% endif %}"""
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_USER_DEFINED = 4

ASK = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON = Structure.json_schema(SCHEMA)


def tools(schema: object = SCHEMA, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema, **fields}}]


@pytest.fixture(scope="module", params=[True, False], ids=["mark tokens", "spelled marks"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A model of noise that may reason: its tags are tokens, or text like any other."""
    changes: dict[str, tuple[Any, str] | None] = {
        "tokenizer.chat_template": (_TEMPLATE, "str"),
    }
    if request.param:
        tokens, types = tiny_model._tokens()
        for i, mark in enumerate(_MARKS, 258):
            tokens[i], types[i] = mark, _USER_DEFINED
        changes["tokenizer.ggml.tokens"] = (tokens, "arr[str]")
        changes["tokenizer.ggml.token_type"] = (types, "arr[i32]")
    path: Path = tmp_path_factory.mktemp("chat") / "chat.gguf"
    tiny_model.write(path, changes=changes)
    return oxibonsai.load(path)


def ask(engine: Engine, seed: int, **fields: Any) -> ChatReply:
    params = SamplingParams(seed=seed, temperature=1, top_k=0, top_p=1, max_tokens=300)
    reply = answer(engine, ChatRequest(ASK, **fields), params)
    list(reply)
    return reply


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("budget", [0, 1, 2, 7, 30])
def test_after_bounded_reasoning_comes_what_was_asked_for(
    engine: Engine, budget: int, thinks: bool
) -> None:
    for seed in range(5):
        fields: dict[str, Any] = {"thinking_budget": budget, "enable_thinking": thinks}
        reply = ask(engine, seed, structure=JSON, **fields)
        assert reply.finish_reason == "stop"
        assert json.loads(reply.reply.content)["a"] in ("x", "y")
        fields |= {"tools": tools(), "tool_choice": "required", "parallel_tool_calls": False}
        reply = ask(engine, seed, **fields)
        assert reply.finish_reason == "tool_calls"
        assert json.loads(reply.reply.tool_calls[0].arguments)["a"] in ("x", "y")


@pytest.mark.parametrize("thinks", [True, False])
def test_the_model_calls_or_answers_in_the_structure(engine: Engine, thinks: bool) -> None:
    """Which of the two, is its own choice: here that of a bias on how they begin."""
    begins = {
        bias: {engine.tokenizer.encode(text, add_special=False, parse_special=True)[0]: 30.0}
        for bias, text in (("call", "<tool_call>"), ("answer", "{"))
    }
    for bias, logit_bias in begins.items():
        params = SamplingParams(
            seed=1, temperature=1, top_k=0, top_p=1, max_tokens=300, logit_bias=logit_bias
        )
        fields: dict[str, Any] = {"tools": tools(), "parallel_tool_calls": False}
        fields |= {"structure": JSON, "enable_thinking": thinks, "thinking_budget": 5}
        reply = answer(engine, ChatRequest(ASK, **fields), params)
        list(reply)
        whole = reply.reply
        text = whole.tool_calls[0].arguments if bias == "call" else whole.content
        assert json.loads(text)["a"] in ("x", "y")
        assert bool(whole.tool_calls) != bool(whole.content)
        assert reply.finish_reason == ("tool_calls" if bias == "call" else "stop")


def test_the_text_of_a_call_inside_of_a_structured_answer_is_text(engine: Engine) -> None:
    request = ChatRequest(ASK, tools=tools(), structure=JSON)
    for structured, calls in ((request, 0), (ChatRequest(ASK, tools=tools()), 1)):
        parser = prepare(engine, structured).parser(str)
        text = '["<tool_call>{"name": "f", "arguments": {}}</tool_call>"]'
        for char in text:
            parser.feed(char)
        parser.finish()
        assert len(parser.reply.tool_calls) == calls
        assert (parser.reply.content == text) is (calls == 0)


def test_reasoning_does_not_end_an_answer_that_has_to_come(engine: Engine) -> None:
    """The end-of-text token is a likely one here; an answer without its structure would be wrong."""
    params = SamplingParams(
        seed=1, temperature=1, top_k=0, top_p=1, max_tokens=60, logit_bias={257: 20.0}
    )
    reply = answer(engine, ChatRequest(ASK, structure=JSON, enable_thinking=True), params)
    list(reply)
    assert reply.finish_reason == "length"
    assert not reply.sequence.complete


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "self", 1])
def test_variables_that_are_fields_of_the_request_are_refused(engine: Engine, name: object) -> None:
    options: Any = {name: 1}
    with pytest.raises(RequestError, match="template_options"):
        prepare(engine, ChatRequest(ASK, template_options=options))


def test_other_variables_reach_the_template(engine: Engine) -> None:
    prepared = prepare(engine, ChatRequest(ASK, template_options={"shout": True}))
    assert prepared.prompt.endswith("!")
    prepared = prepare(engine, ChatRequest(ASK, template_options={"enable_thinking": True}))
    assert prepared.prompt.endswith("<think>\n")


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none", "enable_thinking": True}, True),
        ({"reasoning_effort": "high", "enable_thinking": False}, False),
        ({"reasoning_effort": "high", "template_options": {"enable_thinking": False}}, False),
    ],
)
def test_an_effort_says_whether_to_think_where_nothing_else_does(
    fields: dict[str, Any], thinks: bool | None
) -> None:
    assert ChatRequest(ASK, **fields).thinks is thinks


def test_an_effort_is_a_variable_of_the_template() -> None:
    request = ChatRequest(ASK, reasoning_effort="low")
    assert request.template_variables == {"reasoning_effort": "low"}
    request = ChatRequest(
        ASK,
        reasoning_effort="low",
        template_options={"reasoning_effort": 5, "enable_thinking": True},
    )
    assert request.template_variables == {"reasoning_effort": 5}


def _deep(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def _cycle() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["a"] = schema
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        _deep(60),
        _deep(3000),
        _cycle(),
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20000)}},
        {"type": "object", "properties": {"a": {"enum": [f"v{i}" * 9 for i in range(50000)]}}},
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}},
        {"type": "object", "properties": {"a": {"type": "number", "minimum": float("nan")}}},
        {"type": "object", "properties": {"\ud800": {"type": "string"}}},
    ],
    ids=["deep", "deeper", "cyclic", "wide", "long", "remote", "nan", "surrogate"],
)
@pytest.mark.timeout(60)
def test_hostile_tools_are_refused_in_time(engine: Engine, schema: dict[str, Any]) -> None:
    def take(choice: str, strict: bool) -> None:
        offered = tools(schema, strict=strict)
        prepared = prepare(engine, ChatRequest(ASK, tools=offered, tool_choice=choice))
        assert prepared.options.structure is not None
        engine.structures.constraint(prepared.options.structure)

    for choice, strict in (("auto", True), ("required", True), ("auto", False)):
        if not strict and schema["properties"].get("a") == {"$ref": "http://127.0.0.1:9/x"}:
            take(choice, strict)  # nothing is known of it, and nothing fetched
            continue
        with pytest.raises(RequestError):
            take(choice, strict)


_PHI4 = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if 'tools' in message and message['tools'] %}{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}"
    "{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_tools_go_to_the_system_message_where_the_template_looks_for_them_there(
    tmp_path: Path,
) -> None:
    tiny_model.write(tmp_path / "m.gguf", changes={"tokenizer.chat_template": (_PHI4, "str")})
    engine = oxibonsai.load(tmp_path / "m.gguf")
    listed = json.dumps([tools()[0]["function"]])
    shown = f"<|tool|>{listed}<|/tool|><|end|><|user|>hi<|end|>"
    system = {"role": "system", "content": "Be brief."}
    prompt = prepare(engine, ChatRequest([system, *ASK], tools=tools())).prompt
    assert prompt == f"<|system|>Be brief.{shown}<|assistant|>"
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": "x"}'}}
    said = [*ASK, {"role": "assistant", "tool_calls": [called]}, {"role": "tool", "content": "y"}]
    prompt = prepare(engine, ChatRequest(said, tools=tools())).prompt
    call = '<|tool_call|>[{"name": "f", "arguments": {"a": "x"}}]<|/tool_call|>'
    assert prompt == (f"<|system|>{shown}<|assistant|>{call}<|end|><|tool|>y<|end|><|assistant|>")
    assert prepare(engine, ChatRequest(ASK)).prompt == "<|user|>hi<|end|><|assistant|>"
