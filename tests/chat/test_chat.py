"""A turn of a conversation: prompt, structure, reasoning, tool calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import oxibonsai
import tiny_model
from oxibonsai import RequestError, SamplingParams
from oxibonsai.chat import ChatReply, ChatRequest, answer, prepare
from oxibonsai.engine import Engine
from oxibonsai.structured import Structure

# Qwen's way: tools in the system message, calls and reasoning between tags.
TEMPLATE = """
{%- if tools %}<|im_start|>system
<tools>{{ tools | tojson }}</tools> answer calls in <tool_call></tool_call><|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"type": "boolean"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
ASK: list[dict[str, Any]] = [{"role": "user", "content": "ab"}]
DRAWN = SamplingParams(temperature=1, top_k=0, top_p=1, seed=1, max_tokens=300)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("chat") / "tiny.gguf"
    tokens, types = tiny_model._tokens()
    for i, text in (
        (258, "<think>"),
        (259, "</think>"),
        (260, "<tool_call>"),
        (261, "</tool_call>"),
    ):
        tokens[i], types[i] = text, 4
    changes = {
        "tokenizer.ggml.tokens": (tokens, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.chat_template": (TEMPLATE, "str"),
    }
    tiny_model.write(path, changes=changes)
    return oxibonsai.load(path)


def run(engine: Engine, request: ChatRequest, params: SamplingParams = DRAWN) -> ChatReply:
    reply = answer(engine, request, params)
    list(reply)
    return reply


def test_the_prompt_is_the_templates(engine: Engine) -> None:
    prepared = prepare(engine, ChatRequest(ASK))
    assert prepared.prompt == "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    assert engine.tokenizer.decode(prepared.ids, skip_special=False) == prepared.prompt


def test_an_answer_can_be_begun_by_the_request(engine: Engine) -> None:
    prepared = prepare(engine, ChatRequest([*ASK, {"role": "assistant", "content": "so far"}]))
    assert prepared.prompt.endswith("<|im_start|>assistant\nso far")


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_read_back_and_fits_its_schema(engine: Engine, seed: int) -> None:
    request = ChatRequest(
        ASK, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, enable_thinking=False
    )
    reply = run(engine, request, SamplingParams(temperature=1, seed=seed, max_tokens=300))
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.reply.tool_calls
    assert call.name == "add"
    jsonschema.validate(json.loads(call.arguments), TOOL["function"]["parameters"])
    assert reply.reply.content == ""


def test_tools_that_may_not_be_called_are_not_in_the_prompt(engine: Engine) -> None:
    prepared = prepare(engine, ChatRequest(ASK, tools=[TOOL], tool_choice="none"))
    assert "<tools>" not in prepared.prompt
    assert prepared.options.structure is None


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("budget", [0, 5, None])
def test_a_structure_is_that_of_the_answer_and_reasoning_before_it_is_free(
    engine: Engine, think: bool, budget: int | None
) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}
    request = ChatRequest(
        ASK,
        structure=Structure.json_schema({**schema, "additionalProperties": False}),
        thinking_budget=budget,
        enable_thinking=think,
    )
    # The open tag is likelier than anything else: the model reasons whenever it may.
    params = SamplingParams(temperature=1, seed=2, max_tokens=200, logit_bias={258: 100})
    reply = run(engine, request, params)
    if budget is None and reply.finish_reason == "length":
        assert reply.reply.reasoning_content  # it never ended its reasoning
        return
    jsonschema.validate(json.loads(reply.reply.content), schema)
    generated = reply.sequence.generated
    assert (258 in generated[:1]) == think or not think
    if think:
        assert generated.index(259) == (budget or 0) + 1


def test_reasoning_is_a_field_of_its_own(engine: Engine) -> None:
    params = SamplingParams(temperature=1, seed=2, max_tokens=60, logit_bias={258: 100})
    reply = run(engine, ChatRequest(ASK, thinking_budget=3), params)
    assert reply.sequence.generated[0] == 258
    assert reply.sequence.generated[4] == 259
    assert reply.reply.reasoning_content


def test_pieces_joined_are_the_whole(engine: Engine) -> None:
    reply = answer(engine, ChatRequest(ASK), DRAWN)
    deltas = list(reply)
    assert "".join(d.content for d in deltas) == reply.reply.content
    assert engine.cache.used_bytes == 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ChatRequest([]), "messages is empty"),
        (ChatRequest([{"role": "assistant", "content": "x"}]), "nothing before the answer"),
        (ChatRequest([{"role": "king", "content": "x"}]), r"messages\[0\].role"),
        (ChatRequest(ASK, tools=[{"type": "x"}]), r"tools\[0\].type"),
        (ChatRequest(ASK, tool_choice="required"), "tool_choice is required, but"),
        (ChatRequest(ASK, tools=[TOOL], structure=Structure.regex("a")), "exclude each other"),
    ],
    ids=str,
)
def test_requests_that_make_no_sense_are_refused(
    engine: Engine, request_: ChatRequest, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        answer(engine, request_, DRAWN)


def test_a_budget_is_no_negative_number() -> None:
    with pytest.raises(RequestError, match="thinking_budget is -1"):
        ChatRequest(ASK, thinking_budget=-1)


def test_a_model_without_reasoning_says_so(tiny_path: Path) -> None:
    plain = oxibonsai.load(tiny_path)
    with pytest.raises(RequestError, match="knows no reasoning"):
        prepare(plain, ChatRequest(ASK, thinking_budget=5))
