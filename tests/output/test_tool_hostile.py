"""Hostile text: nothing vanishes, nothing hangs. A quadratic parser would take hours on these."""

from __future__ import annotations

import json

import pytest
from cuts import any_cuts, pieces
from hypothesis import given, settings
from hypothesis import strategies as st

from oxibonsai.output import OutputParser, ReasoningTags
from oxibonsai.output.tools import (
    Llama3Format,
    MistralFormat,
    QwenFormat,
    TaggedFormat,
    ToolFormat,
    read_tools,
)

TOOLS = read_tools([{"type": "function", "function": {"name": "f"}}])
FORMATS = [QwenFormat(), TaggedFormat(), Llama3Format(), MistralFormat()]
MEGABYTE = 1 << 20

formats = pytest.mark.parametrize("tool_format", FORMATS, ids=lambda f: f.name)


def content(tool_format: ToolFormat, parts: list[str]) -> tuple[str, int]:
    one = OutputParser(tool_format, TOOLS, ids=str, reasoning=ReasoningTags())
    for part in parts:
        one.feed(part)
    one.finish()
    return one.reply.content, len(one.reply.tool_calls)


@formats
@pytest.mark.parametrize(
    "unit", ["<", "{", "[", " ", "\n", "<tool_call>", "[TOOL_CALLS]", '{"a":', "é"]
)
def test_a_megabyte_of_one_thing_comes_back(tool_format: ToolFormat, unit: str) -> None:
    text = unit * (MEGABYTE // len(unit) // 4)
    assert content(tool_format, [text]) == (text, 0)
    assert content(tool_format, list(text[: MEGABYTE // 8])) == (text[: MEGABYTE // 8], 0)


@pytest.mark.parametrize(
    ("tool_format", "head"),
    [
        (FORMATS[0], '<tool_call>{"name": "f", "arguments": {"a": "'),
        (FORMATS[1], "<tool_call><function=f><parameter=a>\n"),
        (FORMATS[1], "<tool_call><function="),
        (FORMATS[2], '{"name": "f", "parameters": {"a": "'),
        (FORMATS[3], '[TOOL_CALLS][{"name": "f", "arguments": {"a": "'),
    ],
)
def test_a_call_that_never_ends_comes_back(tool_format: ToolFormat, head: str) -> None:
    text = head + "\\\\</paramete" * (MEGABYTE // 48)
    assert content(tool_format, list(text)) == (text, 0)


@formats
def test_many_calls_in_one_piece(tool_format: ToolFormat) -> None:
    call = {
        "qwen": '<tool_call>{"name": "f"}</tool_call>\n',
        "qwen_xml": "<tool_call><function=f></function></tool_call>\n",
        "llama3": '{"name": "f"}; ',
        "mistral": "[TOOL_CALLS]f[ARGS]{}",
    }[tool_format.name]
    got, count = content(tool_format, [call * 10_000])
    assert count == 10_000
    assert got.strip(" ;") == ""


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_deep_arguments_are_content() -> None:
    text = '<tool_call>{"name": "f", "arguments": ' + nested(10_000) + "}</tool_call>"
    assert content(FORMATS[0], [text]) == (text, 0)
    text = "[TOOL_CALLS]f[ARGS]" + nested(10_000)
    assert content(FORMATS[3], [text]) == (text, 0)
    text = "<tool_call><function=f><parameter=a>" + "[" * 10_000 + "</parameter></function>"
    got, count = content(FORMATS[1], [text])
    assert (got, count) == ("", 1)  # a string: the schema does not know the parameter


@pytest.mark.parametrize(
    "value", ["9" * 100_000, "-1e999999999", "0.1e-99999", '"\\ud800"', '"\\u0000"']
)
def test_arguments_are_passed_on_as_text(value: str) -> None:
    arguments = f'{{"a": {value}}}'
    one = OutputParser(FORMATS[0], TOOLS, ids=str)
    one.feed(f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>')
    assert [c.arguments for c in one.reply.tool_calls] == [arguments]


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e", "+1", "'a'", '"\\x"', '"\n"', "01", "True"]
)
def test_what_is_no_json_is_no_call(value: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>'
    assert content(FORMATS[0], [text]) == (text, 0)


@pytest.mark.parametrize("name", ['"\\ud800"', '"\\u0066"', "null", "5", '""', '"F"', '" f"'])
def test_only_the_names_on_offer_are_called(name: str) -> None:
    text = f'<tool_call>{{"name": {name}}}</tool_call>'
    called = json.loads(name) == "f"
    assert content(FORMATS[0], [text]) == (("", 1) if called else (text, 0))


tags = "<tool_call> </tool_call> <function=f> <function= <parameter=a> </parameter> </function>"
texts = '[TOOL_CALLS] [ARGS] f {"name":"f" "arguments":{ "a":1 <|python_tag|> <think> </think> é'
fragments = st.sampled_from([*tags.split(), *texts.split(), *'{}[]",:<> \n;\\'])


@formats
@settings(max_examples=60)
@given(parts=st.lists(fragments, max_size=25), cuts=any_cuts)
def test_no_text_is_lost_and_no_cut_matters(
    tool_format: ToolFormat, parts: list[str], cuts: list[int]
) -> None:
    text = "".join(parts)

    def run(parts: list[str]) -> object:
        one = OutputParser(tool_format, TOOLS, ids=str)
        for part in parts:
            one.feed(part)
        one.finish()
        return one.reply

    whole = run([text])
    assert run(parts) == whole == run(pieces(text, cuts))
    if not whole.tool_calls:
        assert whole.content == text
