# ruff: noqa: RUF001
"""The further formats of calls: what is written can be read, and generation can be held to it."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import pytest
from cuts import any_cuts, pieces
from hypothesis import given, settings
from spellings import SPELLINGS, Spelling

from oxibonsai.output import OutputParser, ReasoningTags
from oxibonsai.output.grammar import tool_structure
from oxibonsai.output.tools import ToolChoice, read_tools
from oxibonsai.structured import Structure
from oxibonsai.structured.grammar import to_lark

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "code": {"type": "string", "minLength": 2, "maxLength": 4},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = read_tools(
    [
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    ]
)
AUTO, REQUIRED = ToolChoice("auto"), ToolChoice("required")
THINK = ReasoningTags()
FULL = {
    "city": 'Köln\n"am" <Rhein>',
    "days": 3,
    "unit": "c",
    "exact": True,
    "tags": ["a", "b, c"],
    "place": {"lat": -1.5},
    "code": "ab",
}

each = pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
tokens = pytest.mark.parametrize("special", [False, True], ids=["letters", "tokens"])


def read(spelling: Spelling, parts: list[str], **options: Any) -> OutputParser:
    parser = OutputParser(spelling.format, TOOLS, ids=str, **options)
    for part in parts:
        parser.feed(part)
    parser.finish()
    return parser


def called(parser: OutputParser) -> list[tuple[str, Any]]:
    return [(c.name, json.loads(c.arguments)) for c in parser.reply.tool_calls]


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_template_tells_the_format(name: str) -> None:
    assert SPELLINGS[name].format.name == name.removesuffix(" of V4")


@each
@settings(max_examples=15)
@given(cuts=any_cuts)
def test_calls_are_read_however_the_text_is_cut(spelling: Spelling, cuts: list[int]) -> None:
    calls = [("weather", FULL), ("now", {}), ("weather", {"city": "a"})]
    parser = read(spelling, pieces(f"Well.\n{spelling.calls(calls)}\n", cuts))
    assert called(parser) == calls
    assert parser.reply.content == "Well."


@each
def test_arguments_come_as_they_are_written(spelling: Spelling) -> None:
    text = spelling.call("weather", city="a" * 50, days=3)
    parser = OutputParser(spelling.format, TOOLS, ids=str)
    head = text[: text.index("aaaa") + 20]
    deltas = parser.feed(head)
    joined = "".join(d.tool_call.arguments for d in deltas if d.tool_call is not None)
    assert joined.endswith("a" * 10)


@each
def test_text_around_calls_and_reasoning_before_them(spelling: Spelling) -> None:
    text = f"<think>{spelling.call('now')}</think>\n\nA. {spelling.call('now')} B."
    parser = read(spelling, list(text), reasoning=THINK)
    assert parser.reply.content == "A. B."
    assert parser.reply.reasoning_content == spelling.call("now")
    assert called(parser) == [("now", {})]


@each
def test_what_is_no_call_comes_back(spelling: Spelling) -> None:
    whole = spelling.call("weather", city="Köln", days=3)
    for text in (
        whole.replace("weather", "rm"),
        whole[: whole.index("Köln")],
        whole[: whole.index("weather") + 3],
        whole.replace("days", "city"),
        whole[: whole.index("weather")] + "\n\n?!",
    ):
        if text == whole.replace("days", "city") and '"city"' in text:
            continue  # JSON may have a key twice
        parser = read(spelling, list(text))
        assert parser.reply.content == text
        assert parser.reply.tool_calls == []


@each
def test_without_parallel_calls_a_second_one_is_content(spelling: Spelling) -> None:
    parser = read(spelling, [spelling.calls([("now", {}), ("now", {})])], parallel=False)
    assert called(parser) == [("now", {})]
    assert "now" in parser.reply.content


@each
@pytest.mark.parametrize("unit", ["<", "{", "[", "\n", "<tool_call>", "call:f{", "f(", "é"])
def test_a_lot_of_one_thing_comes_back(spelling: Spelling, unit: str) -> None:
    text = unit * (50_000 // len(unit))
    opened = spelling.format.openings[0] + text
    assert read(spelling, [text]).reply.content.strip() == text.strip()
    assert read(spelling, [opened]).reply.content.strip() == opened.strip()


class Judge:
    """A grammar, asked about whole texts."""

    def __init__(self, spelling: Spelling, choice: ToolChoice, special: bool, **options: Any):
        self.marks = [*spelling.marks, "<think>", "</think>"] if special else []
        ids = {mark: 257 + i for i, mark in enumerate(self.marks)}
        tools = options.pop("tools", TOOLS)
        structure = tool_structure(spelling.format, tools, choice, special_tokens=ids, **options)
        assert structure is not None

        class Bytes:
            eos_token_id = 256
            bos_token_id = None
            tokens = (*(bytes([i]) for i in range(256)), b"<end>", *(m.encode() for m in ids))
            special_token_ids = tuple(range(256, 257 + len(ids)))

            def __call__(self, text: bytes) -> list[int]:
                return list(text)

        vocabulary = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), eos_token=[256])
        self.matcher = llguidance.LLMatcher(vocabulary, to_lark(structure))
        assert not self.matcher.is_error(), self.matcher.get_error()
        self.ids = ids

    def accepts(self, text: str) -> bool:
        """Whether the text is allowed and may end."""
        return self.begins(text) and self.matcher.is_accepting()

    def begins(self, text: str) -> bool:
        """Whether the text may be the beginning of one."""
        self.matcher.reset()
        found: list[int] = []
        while text:
            mark = next((m for m in self.marks if text.startswith(m)), None)
            found += [self.ids[mark]] if mark else list(text[0].encode())
            text = text[len(mark) if mark else 1 :]
        return bool(self.matcher.try_consume_tokens(found) == len(found))


@each
@tokens
def test_required_is_a_call_that_fits_its_schema(spelling: Spelling, special: bool) -> None:
    judge = Judge(spelling, REQUIRED, special)
    assert judge.accepts(spelling.call("weather", city="Köln"))
    assert judge.accepts(spelling.call("weather", **FULL))
    assert judge.accepts(spelling.call("now"))
    for wrong in (
        {"city": "a", "days": 8},
        {"city": "a", "unit": "k"},
        {"city": "a", "exact": "yes"},
        {"city": "a", "tags": [1]},
        {"city": "a", "place": {"lat": "x"}},
        {"city": "a", "code": "a"},
        {"city": "a", "code": "abcde"},
        {"city": "a", "other": 1},
        {"days": 1},
    ):
        assert not judge.begins(spelling.call("weather", **wrong)), wrong
    assert not judge.begins(spelling.call("now", a=1))
    assert not judge.begins(spelling.call("rm"))
    assert not judge.begins("Hello")
    assert not judge.accepts("")


@each
@tokens
def test_auto_leaves_text_free_and_holds_calls(spelling: Spelling, special: bool) -> None:
    judge = Judge(spelling, AUTO, special)
    for text in ("", "Hello.\n", "1 < 2 <tool_ca", '[1, {"a": 2}]', "éß\n\n{}"):
        assert judge.accepts(text), text
    assert judge.accepts(spelling.call("weather", city="a"))
    assert judge.accepts("Let me see.\n" + spelling.call("weather", city="a"))
    assert not judge.begins(spelling.call("weather", city="a", days=8))
    assert not judge.begins(spelling.call("rm"))


@each
@tokens
@pytest.mark.parametrize("choice", [AUTO, REQUIRED], ids=["auto", "required"])
def test_several_calls_where_they_are_allowed(
    spelling: Spelling, special: bool, choice: ToolChoice
) -> None:
    several = spelling.calls([("now", {}), ("weather", {"city": "a"})])
    assert Judge(spelling, choice, special).accepts(several)
    alone = Judge(spelling, choice, special, parallel=False)
    assert alone.accepts(spelling.call("now"))
    assert not alone.begins(several)


@each
@tokens
def test_reasoning_may_come_first(spelling: Spelling, special: bool) -> None:
    judge = Judge(spelling, REQUIRED, special, reasoning=THINK)
    assert judge.accepts(f"<think>\nHm.\n</think>\n\n{spelling.call('now')}")
    assert judge.accepts(spelling.call("now"))
    assert not judge.accepts("<think>a</think>Text")


@each
@tokens
def test_an_answer_that_has_a_structure_stands_beside_calls(
    spelling: Spelling, special: bool
) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    judge = Judge(spelling, AUTO, special, answer=Structure.json_schema(schema))
    assert judge.accepts('{"sum": 5}')
    assert judge.accepts(spelling.call("weather", city="a"))
    assert not judge.accepts("Hello")


LENIENT = [
    ("granite", '<|tool_call|> [{"arguments": {}, "name": "now"}]'),
    ("nemotron", '<TOOLCALL>[{"name": "now", "arguments": {}}]'),
    ("command_r", '<|START_ACTION|>[\n {"tool_call_id": "0", "tool_name": "now", "parameters": {}}\n]'),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
    ("kimi_k2", "<|tool_calls_section_begin|>\n<|tool_call_begin|> functions.now:12 \n"
                "<|tool_call_argument_begin|> {} <|tool_call_end|>"),
    ("glm", "<tool_call>now</tool_call>"),
    ("lfm2", "<|tool_call_start|>[ now( ) ]<|tool_call_end|>"),
    ("gemma4", "<|tool_call>call:now{}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), LENIENT)
def test_other_spellings_of_a_call_are_read(name: str, text: str) -> None:
    # Kimi's blank before the name is no letter of the mark that the grammar writes.
    text = text.replace("> functions", ">functions")
    assert called(read(SPELLINGS[name], list(text))) == [("now", {})]


PYTHON = [
    ("'a\\'b\\n\\x41\\u00e9'", "a'b\nAé"),
    ('"it\'s"', "it's"),
    ("True", True),
    ("None", None),
    ("-1.5e3", -1500.0),
    ("['a', [1, 2], {}]", ["a", [1, 2], {}]),
    ("{'k': {'l': False}}", {"k": {"l": False}}),
    ("'\\d+'", "\\d+"),
]


@pytest.mark.parametrize(("text", "value"), PYTHON)
def test_values_in_pythons_notation(text: str, value: Any) -> None:
    whole = f"<|tool_call_start|>[weather(city={text})]<|tool_call_end|>"
    assert called(read(SPELLINGS["lfm2"], list(whole))) == [("weather", {"city": value})]


@pytest.mark.parametrize(
    "text", ["nan", "1_0", "01", "f()", "'\\ud800'", "[1 2]", "{1: 2}", "'a", ""]
)
def test_what_is_no_value_is_no_call(text: str) -> None:
    whole = f"<|tool_call_start|>[weather(city={text})]<|tool_call_end|>"
    assert read(SPELLINGS["lfm2"], list(whole)).reply.content == whole
