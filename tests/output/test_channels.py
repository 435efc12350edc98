"""Replies of several messages with heads: gpt-oss."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import pytest
from cuts import any_cuts, pieces
from hypothesis import given, settings

from oxibonsai.errors import RequestError
from oxibonsai.output import OutputParser
from oxibonsai.output.channels import ChannelSplitter
from oxibonsai.output.grammar import tool_structure
from oxibonsai.output.reasoning import CHANNELS
from oxibonsai.output.tools import ToolChoice, detect_tool_format, read_tools
from oxibonsai.structured import Structure
from oxibonsai.structured.grammar import to_lark

SCHEMA = {
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOLS = read_tools([{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}])
HARMONY = detect_tool_format("<|channel|> <|message|> functions.")

THINK = "<|channel|>analysis<|message|>Hm.\n<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
TRANSCRIPTS = [
    (f"{FINAL}Yes.\n 1 < 2", "", "Yes.\n 1 < 2", 0),
    (f"{THINK}{FINAL}Yes.", "Hm.\n", "Yes.", 0),
    (f"{THINK}<|channel|>final <|constrain|>json<|message|>{{}}", "Hm.\n", "{}", 0),
    (f"{THINK}{THINK}{FINAL}Yes.<|return|>", "Hm.\n\n\nHm.\n", "Yes.", 0),
    ("Yes, plainly.", "", "Yes, plainly.", 0),
    ("", "", "", 0),
    ("<|channel|>analysis<|message|>never ended", "never ended", "", 0),
    (CALL, "", "", 1),
    (f"{THINK}{CALL}<|call|>", "Hm.\n", "", 1),
    (f"{THINK}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{CALL}", "Hm.\n",
     "I look.", 1),
    (' to=functions.f<|channel|>commentary json<|message|>{"a": 1}', "", "", 1),
    (f'{THINK} to=functions.f<|channel|>analysis<|message|>{{"a": 1}}<|call|>', "Hm.\n", "", 1),
    ('<|channel|>commentary to=functions.f<|message|>\n{"a": 1}', "", "", 1),
    (f"<|channel|>commentary to=assistant{THINK[:-5]}", "Hm.\n", "", 0),
    (f"{THINK}<|channel|>fin", "Hm.\n", "", 0),
    # to nobody who is known: word for word
    ("<|channel|>commentary to=python<|message|>1+1", "", "<|channel|>commentary to=python<|message|>1+1",
     0),
]  # fmt: skip


def read(parts: list[str], **options: Any) -> OutputParser:
    parser = OutputParser(HARMONY, TOOLS, ids=str, reasoning=CHANNELS, **options)
    for part in parts:
        parser.feed(part)
    parser.finish()
    return parser


@pytest.mark.parametrize(("text", "reasoning", "content", "calls"), TRANSCRIPTS)
@settings(max_examples=30)
@given(cuts=any_cuts)
def test_transcripts(text: str, reasoning: str, content: str, calls: int, cuts: list[int]) -> None:
    reply = read(pieces(text, cuts)).reply
    assert (reply.reasoning_content, reply.content) == (reasoning, content)
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("f", '{"a": 1}')] * calls


def test_the_text_may_begin_inside_of_reasoning() -> None:
    splitter = ChannelSplitter(inside=True)
    assert splitter.feed(f"Hm.<|end|><|start|>assistant{FINAL}Yes") == ("Hm.", "Yes")


def test_text_comes_as_it_is_written() -> None:
    splitter = ChannelSplitter()
    assert splitter.feed("<|channel|>analysis<|message|>a") == ("a", "")
    assert splitter.feed("b<|e") == ("b", "")
    assert splitter.feed("nd|><|start|>assistant<|channel|>final<|message|>c") == ("", "c")


@pytest.mark.parametrize("unit", ["<", "<|channel|>", "<|message|>", "to=", "<|end|>", "é"])
def test_a_lot_of_one_thing_takes_linear_time(unit: str) -> None:
    read([unit * 30_000])
    read(list(THINK + unit * 10_000))


@pytest.mark.parametrize("call", [f"{CALL[:-8]}5", CALL.replace("functions.f", "functions.g")])
def test_a_malformed_call_is_content(call: str) -> None:
    reply = read(list(call)).reply
    assert reply.tool_calls == []
    assert reply.content.replace(" <|constrain|>json", "") == call.replace(" <|constrain|>json", "")


MARKS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
IDS = {mark: 257 + i for i, mark in enumerate(MARKS)}


class Bytes:
    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(256)), b"<end>", *(m.encode() for m in MARKS))
    special_token_ids = tuple(range(256, 257 + len(MARKS)))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


VOCABULARY = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), eos_token=[256])


def allowed(choice: str, text: str, **options: Any) -> bool:
    """Whether a whole text is one that the grammar takes."""
    assert HARMONY is not None
    structure = tool_structure(
        HARMONY, TOOLS, ToolChoice(choice), special_tokens=IDS, reasoning=CHANNELS, **options
    )  # type: ignore[arg-type]
    assert structure is not None
    matcher = llguidance.LLMatcher(VOCABULARY, to_lark(structure))
    assert not matcher.is_error(), matcher.get_error()
    ids: list[int] = []
    while text:
        mark = next((m for m in MARKS if text.startswith(m)), None)
        ids += [IDS[mark]] if mark else list(text[0].encode())
        text = text[len(mark) if mark else 1 :]
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


def test_generation_is_held_to_calls() -> None:
    for text in (
        CALL,
        THINK + CALL,
        THINK + ' to=functions.f<|channel|>commentary json<|message|>{"a": 5}',
    ):
        assert allowed("required", text)
        assert allowed("auto", text)
        assert not allowed("auto", text.replace("functions.f", "functions.g"))
        assert not allowed("auto", text[:-2] + '"x"}')
    for text in (FINAL + "Yes.", f"{THINK}{FINAL}Yes.", FINAL):
        assert allowed("auto", text)
        assert not allowed("required", text)
    assert not allowed("required", THINK)


def test_an_answer_that_has_a_structure_stands_beside_calls() -> None:
    answer = Structure.json_schema(
        {"type": "object", "properties": {"s": {"type": "null"}}, "required": ["s"]}
    )
    assert allowed("auto", f'{THINK}{FINAL}{{"s": null}}', answer=answer)
    assert allowed(
        "auto",
        f"<|channel|>final <|constrain|>json<|message|>{json.dumps({'s': None})}",
        answer=answer,
    )
    assert allowed("auto", CALL, answer=answer)
    assert not allowed("auto", f"{FINAL}Yes.", answer=answer)


def test_without_its_tokens_the_format_is_refused() -> None:
    assert HARMONY is not None
    with pytest.raises(RequestError, match="lacks some of the tokens"):
        tool_structure(HARMONY, TOOLS, ToolChoice("auto"), reasoning=CHANNELS)
