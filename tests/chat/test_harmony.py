"""A model whose replies are messages with heads (gpt-oss): prompts, budgets, structures, calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
import tiny_model
from oxibonsai import SamplingParams
from oxibonsai.chat import ChatReply, ChatRequest, answer, prepare
from oxibonsai.engine import Engine
from oxibonsai.output import ThinkingBudget
from oxibonsai.output.reasoning import CHANNELS
from oxibonsai.structured import Structure

_TEMPLATE = """{% if tools %}namespace functions. {{ tools | tojson }}{% endif %}{% for m in messages -%}
<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% if "<|channel|>analysis<|message|>" in m.content %}
{{ raise_exception("no") }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
_MARKS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>")
_MARKS += ("<|return|>",)
_CONTROL = 3
FINAL = "<|channel|>final<|message|>"
ASK = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON = Structure.json_schema(SCHEMA)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A model of noise with gpt-oss's marks."""
    tokens, types = tiny_model._tokens()
    for i, mark in enumerate(_MARKS, 258):
        tokens[i], types[i] = mark, _CONTROL
    path: Path = tmp_path_factory.mktemp("channels") / "channels.gguf"
    changes: dict[str, tuple[Any, str] | None] = {
        "tokenizer.chat_template": (_TEMPLATE, "str"),
        "tokenizer.ggml.tokens": (tokens, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
    }
    tiny_model.write(path, changes=changes)
    return oxibonsai.load(path)


def ask(engine: Engine, seed: int, **fields: Any) -> ChatReply:
    params = SamplingParams(seed=seed, temperature=1, top_k=0, top_p=1, max_tokens=300)
    reply = answer(engine, ChatRequest(ASK, **fields), params)
    list(reply)
    return reply


def test_ends_are_those_of_replies_and_not_of_messages(engine: Engine) -> None:
    ends = {engine.tokenizer.vocabulary.texts[i] for i in engine.tokenizer.eos_ids}
    assert ends == {"<|im_end|>", "<|call|>", "<|return|>"}


def test_an_answer_that_is_begun_has_its_head(engine: Engine) -> None:
    said = [*ASK, {"role": "assistant", "content": "Well"}]
    assert prepare(engine, ChatRequest(said)).prompt.endswith(f"<|start|>assistant{FINAL}Well")
    plain = prepare(engine, ChatRequest(ASK))
    assert plain.prompt.endswith("<|start|>assistant")
    for fields in ({"enable_thinking": False}, {"structure": JSON}, {"reasoning_effort": "none"}):
        assert prepare(engine, ChatRequest(ASK, **fields)).prompt == plain.prompt + FINAL
        with_tools = ChatRequest(ASK, tools=TOOLS, **fields)
        assert prepare(engine, with_tools).prompt.endswith("<|start|>assistant")


def test_a_structure_is_that_of_the_answer(engine: Engine) -> None:
    for seed in range(5):
        reply = ask(engine, seed, structure=JSON)
        assert json.loads(reply.reply.content)["a"] in ("x", "y")
        assert reply.reply.reasoning_content == ""


@pytest.mark.parametrize("budget", [None, 0, 3])
def test_required_is_a_call(engine: Engine, budget: int | None) -> None:
    for seed in range(5):
        reply = ask(engine, seed, tools=TOOLS, tool_choice="required", thinking_budget=budget)
        if reply.finish_reason == "length":
            assert budget is None  # noise may think for ever
            continue
        assert reply.finish_reason == "tool_calls"
        assert reply.reply.content == ""
        assert json.loads(reply.reply.tool_calls[0].arguments)["a"] in ("x", "y")


def test_the_model_calls_or_answers_in_the_structure(engine: Engine) -> None:
    for seed in range(8):
        fields = {"tools": TOOLS, "structure": JSON, "thinking_budget": 2}
        reply = ask(engine, seed, **fields)
        if reply.finish_reason == "length":
            continue  # commentary has no bound
        calls = reply.reply.tool_calls
        text = calls[0].arguments if calls else reply.reply.content[-10:]
        assert json.loads(text)["a"] in ("x", "y")


def test_reasoning_ends_with_the_head_of_the_next_message(engine: Engine) -> None:
    tokenizer = engine.tokenizer

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=True)

    budget = ThinkingBudget(
        3,
        token_bytes=tokenizer.token_bytes,
        closing=encode(CHANNELS.close + CHANNELS.after),
        tags=CHANNELS,
        inside=False,
    )
    for token in encode(f"{CHANNELS.open}hm"):
        budget.feed(token)
        assert budget.forced() == []
    budget.feed(encode("m")[0])
    forced = budget.forced()
    assert tokenizer.decode(forced, skip_special=False) == "<|end|><|start|>assistant"
    for token in forced:
        budget.feed(token)
    assert budget.forced() == []
    assert not budget.inside
