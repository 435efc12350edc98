"""Calls in the text of each family of models: what a client gets, for every way to cut the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cuts import any_cuts, pieces
from hypothesis import given, settings

from oxibonsai.output import Delta, OutputParser, ReasoningTags, Reply, ToolCallDelta
from oxibonsai.output.tools import (
    Llama3Format,
    MistralFormat,
    QwenFormat,
    TaggedFormat,
    ToolFormat,
    call_ids,
    read_tools,
)

TOOLS = read_tools(
    [
        {"type": "function", "function": {"name": "now"}},
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer"},
                        "exact": {"type": "boolean"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "until": {"anyOf": [{"type": "null"}, {"type": "string"}]},
                        "place": {"$ref": "#/$defs/place"},
                    },
                    "$defs": {"place": {"type": "object"}},
                },
            },
        },
    ]
)
QWEN, XML, LLAMA = QwenFormat(), TaggedFormat(), Llama3Format()
MISTRAL, NAMED = MistralFormat(), MistralFormat(named=True)


def parser(tool_format: ToolFormat, **options: Any) -> OutputParser:
    return OutputParser(tool_format, TOOLS, ids=lambda index: f"id{index}", **options)


def run(tool_format: ToolFormat, parts: list[str], **options: Any) -> tuple[list[Delta], Any]:
    one = parser(tool_format, **options)
    deltas = [d for p in parts for d in one.feed(p)] + one.finish()
    return deltas, one.reply


def joined(deltas: list[Delta]) -> tuple[str, str, list[ToolCallDelta]]:
    """What a client puts together; checks that id and name come once, first."""
    calls: list[ToolCallDelta] = []
    for delta in deltas:
        piece = delta.tool_call
        if piece is None:
            continue
        if piece.id is not None:
            assert piece.index == len(calls)
            assert piece.name is not None
            calls.append(piece)
            continue
        assert piece.name is None
        assert piece.arguments, "no empty piece"
        last = calls[piece.index]
        calls[piece.index] = ToolCallDelta(
            last.index, last.id, last.name, last.arguments + piece.arguments
        )
    content = "".join(d.content for d in deltas)
    return content, "".join(d.reasoning_content for d in deltas), calls


CITY = '{"city": "Köln", "days": 3}'
CALL = '{"name": "weather", "arguments": ' + CITY + "}"
LLAMA_CALL = CALL.replace("arguments", "parameters")
WEATHER = ("weather", CITY)
NOW = ("now", "{}")

TRANSCRIPTS: list[tuple[ToolFormat, str, str, list[tuple[str, str]]]] = [
    # Qwen: one call, with text before it, several, text between them
    (QWEN, f"<tool_call>\n{CALL}\n</tool_call>", "", [WEATHER]),
    (QWEN, f"I'll look.\n\n<tool_call>\n{CALL}\n</tool_call>\n", "I'll look.", [WEATHER]),
    (QWEN, f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{CALL}</tool_call>", "", [WEATHER] * 2),
    (QWEN, f"a <tool_call>{CALL}</tool_call> b <tool_call>{CALL}</tool_call> c", "a b c", [WEATHER] * 2),
    # no end tag; the members in another order; extra ones; arguments left out, null, in a string
    (QWEN, f"<tool_call>{CALL}", "", [WEATHER]),
    (QWEN, f'<tool_call>{{"arguments": {CITY}, "name": "weather"}}</tool_call>', "", [WEATHER]),
    (QWEN, '<tool_call>{"id": 7, "type": "function", "name": "now"}</tool_call>', "", [NOW]),
    (QWEN, '<tool_call>{"name": "now", "arguments": null}</tool_call>', "", [NOW]),
    (QWEN, '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}', "", [("now", '{"a": 1}')]),
    (QWEN, '<tool_call>{"name":"now","arguments":{ "x":[ ] , "y":1e5}}</tool_call>', "",
     [("now", '{ "x":[ ] , "y":1e5}')]),
    # text in arguments that looks like tags
    (QWEN, '<tool_call>{"name": "now", "arguments": {"a": "</tool_call><tool_call>"}}</tool_call>', "",
     [("now", '{"a": "</tool_call><tool_call>"}')]),
    # no call: text stays as it is, white space too
    (QWEN, "1 < 2, <tool> and <tool_ca\n ", "1 < 2, <tool> and <tool_ca\n ", []),
    # malformed, unknown function, unfinished: content, and the next call is read
    (QWEN, '<tool_call>\n{"name": "weather", }\n</tool_call>', None, []),
    (QWEN, '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', None, []),
    (QWEN, '<tool_call>{"name": "now", "arguments": [1]}</tool_call>', None, []),
    (QWEN, '<tool_call>{"name": "now", "name": "now"}</tool_call>', None, []),
    (QWEN, '<tool_call>{"name": "now", "arguments": {"a": 1', None, []),
    (QWEN, "<tool_call>", None, []),
    (QWEN, "<tool_call><tool_call>" + CALL, "<tool_call>", [WEATHER]),
    (QWEN, f'<tool_call>{{"name": "now\n<tool_call>{CALL}</tool_call>',
     '<tool_call>{"name": "now', [WEATHER]),
    # XML-like: types come from the schema
    (XML, "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n3\n"
          "</parameter>\n</function>\n</tool_call>", "", [WEATHER]),
    (XML, "Well.\n<tool_call><function=now></function></tool_call>\n<tool_call>\n<function=now>\n"
          "</function>\n</tool_call>", "Well.", [NOW] * 2),
    (XML, "<function=now>\n</function>", "", [NOW]),  # some leave the outer tag out
    (XML, '<tool_call><function=weather><parameter=city>\n"a"\n<b>\\ \n\n</parameter></function>',
     "", [("weather", '{"city": "\\"a\\"\\n<b>\\\\ \\n"}')]),
    (XML, "<tool_call><function=weather><parameter=exact>True</parameter><parameter=tags>\n"
          '["</parameter>"]\n</parameter><parameter=until>null</parameter><parameter=place>\n{"a": [1]}\n'
          "</parameter></function>", "",
     [("weather", '{"exact": true, "tags": ["</parameter>"], "until": null, "place": {"a": [1]}}')]),
    (XML, "<tool_call><function=weather><parameter=days>soon</parameter><parameter=until>5</parameter>"
          "<parameter=other>5</parameter></function></tool_call>", "",
     [("weather", '{"days": "soon", "until": "5", "other": "5"}')]),
    (XML, "<tool_call><function=weather><parameter=city>\n\n</parameter></function>", "",
     [("weather", '{"city": ""}')]),
    (XML, "<tool_call><function=rm></function></tool_call>", None, []),
    (XML, "<tool_call><function=weather><parameter=city>x</function></tool_call>", None, []),
    # Llama 3: the text itself is a call, or what follows the tag is
    (LLAMA, LLAMA_CALL, "", [WEATHER]),
    (LLAMA, f"\n\n<|python_tag|>{LLAMA_CALL}", "", [WEATHER]),
    (LLAMA, f"{LLAMA_CALL}; {LLAMA_CALL};{CALL}", "", [WEATHER] * 3),
    (LLAMA, f"{LLAMA_CALL}\n{LLAMA_CALL}\n{LLAMA_CALL}", "", [WEATHER] * 3),
    (LLAMA, "Sunny.", "Sunny.", []),
    (LLAMA, '{"city": "Köln"}', None, []),  # an answer in JSON
    (LLAMA, f"So: {LLAMA_CALL}", None, []),  # not at the beginning
    (LLAMA, '<|python_tag|>search.call(query="x")', None, []),  # code
    # Mistral, both forms
    (MISTRAL, f"[TOOL_CALLS][{CALL}, {CALL}]", "", [WEATHER] * 2),
    (MISTRAL, 'Yes.[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "abcdefghi"}]', "Yes.", [NOW]),
    (MISTRAL, f"[TOOL_CALLS][{CALL}", "", [WEATHER]),
    (MISTRAL, "[TOOL_CALLS][]", None, []),
    (NAMED, f"[TOOL_CALLS]weather[ARGS]{CITY}[TOOL_CALLS]now[ARGS]{{}}", "", [WEATHER, NOW]),
    (NAMED, f"[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{CITY}", "", [WEATHER]),
    (NAMED, f"Hm. [TOOL_CALLS]weather{CITY} done", "Hm. done", [WEATHER]),
    (NAMED, "[TOOL_CALLS]rm[ARGS]{}", None, []),
    (NAMED, "[TOOL_CALLS]now[ARGUE]{}", None, []),
]  # fmt: skip


@pytest.mark.parametrize(("tool_format", "text", "content", "calls"), TRANSCRIPTS)
@settings(max_examples=30)
@given(cuts=any_cuts)
def test_transcripts(
    tool_format: ToolFormat,
    text: str,
    content: str | None,
    calls: list[tuple[str, str]],
    cuts: list[int],
) -> None:
    """``content`` None: all of the text comes back."""
    deltas, reply = run(tool_format, pieces(text, cuts))
    expected = text if content is None else content
    assert reply.content == expected
    assert [(c.name, c.arguments) for c in reply.tool_calls] == calls
    got, _, streamed = joined(deltas)
    assert got == expected
    if content is not None and "now\n" not in text:
        assert [(c.id, c.name, c.arguments) for c in streamed] == [
            (f"id{i}", *call) for i, call in enumerate(calls)
        ]
    for call in reply.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize(("tool_format", "text", "content", "calls"), TRANSCRIPTS)
def test_one_character_at_a_time_is_all_at_once(
    tool_format: ToolFormat, text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    whole, at_once = run(tool_format, [text])
    single, one_by_one = run(tool_format, list(text))
    assert joined(whole) == joined(single)
    assert at_once == one_by_one


def test_arguments_come_as_they_are_written() -> None:
    one = parser(QWEN)
    assert one.feed('Hi. <tool_call>{"name": "weather"') == [Delta(content="Hi.")]
    assert one.feed(', "arguments": {"city": "K') == [
        Delta(tool_call=ToolCallDelta(0, "id0", "weather", '{"city": "K'))
    ]
    assert one.feed('ö"') == [Delta(tool_call=ToolCallDelta(0, arguments='ö"'))]
    assert one.feed("}}") == [Delta(tool_call=ToolCallDelta(0, arguments="}"))]
    assert one.feed("</tool_call>") == []
    assert one.finish() == []
    assert one.finish_reason("stop") == "tool_calls"


def test_strings_of_the_xml_form_come_as_they_are_written() -> None:
    one = parser(XML)
    one.feed("<tool_call><function=weather><parameter=city>\n")
    assert one.feed('Kö"ln\n') == [Delta(tool_call=ToolCallDelta(0, arguments='Kö\\"ln'))]


def test_a_call_that_breaks_off_is_content_and_no_call() -> None:
    text = f'<tool_call>{{"name": "weather", "arguments": {CITY}'
    deltas, reply = run(QWEN, [text])
    assert reply.content == text
    assert reply.tool_calls == []
    # In a stream its pieces are out already; the whole text follows as content.
    assert joined(deltas)[2] == [ToolCallDelta(0, "id0", "weather", CITY)]
    one = parser(QWEN)
    one.feed(text)
    one.finish()
    assert one.finish_reason("stop") == "stop"
    assert one.finish_reason("length") == "length"


def test_the_next_call_after_a_broken_one_has_an_index_of_its_own() -> None:
    broken = '<tool_call>{"name": "weather", "arguments": {"city": oops'
    deltas, reply = run(QWEN, [broken, f"<tool_call>{CALL}</tool_call>"])
    assert [c.index for c in joined(deltas)[2]] == [0, 1]
    assert [(c.id, c.arguments) for c in reply.tool_calls] == [("id1", CITY)]


@pytest.mark.parametrize(
    ("tool_format", "first", "rest"),
    [
        (QWEN, f"<tool_call>{CALL}</tool_call>", f"<tool_call>{CALL}</tool_call>"),
        (XML, "<tool_call><function=now></function></tool_call>", "<function=now></function>"),
        (LLAMA, LLAMA_CALL, f"; {LLAMA_CALL}"),
        (MISTRAL, f"[TOOL_CALLS][{CALL}", f",{CALL}]"),
        (NAMED, "[TOOL_CALLS]now[ARGS]{}", "[TOOL_CALLS]now[ARGS]{}"),
    ],
)
def test_without_parallel_calls_a_second_one_is_content(
    tool_format: ToolFormat, first: str, rest: str
) -> None:
    _, reply = run(tool_format, [first + rest], parallel=False)
    assert len(reply.tool_calls) == 1
    assert reply.content == rest
    _, reply = run(tool_format, [first + rest])
    assert len(reply.tool_calls) == 2


def test_without_a_format_or_tools_nothing_is_a_call() -> None:
    text = f"<tool_call>{CALL}</tool_call> "
    for one in (
        OutputParser(None, TOOLS, ids=str),
        OutputParser(QWEN, [], ids=str),
    ):
        assert [*one.feed(text), *one.finish()] == [Delta(content=text)]


@given(cuts=any_cuts)
def test_reasoning_comes_first_and_holds_no_calls(cuts: list[int]) -> None:
    text = f"Maybe <tool_call>{CALL}?\n</think>\n\nYes.\n<tool_call>\n{CALL}\n</tool_call>"
    deltas, reply = run(QWEN, pieces(text, cuts), reasoning=ReasoningTags(), inside_reasoning=True)
    content, reasoning, calls = joined(deltas)
    assert (content, reasoning) == ("Yes.", f"Maybe <tool_call>{CALL}?")
    assert (reply.content, reply.reasoning_content) == (content, reasoning)
    assert [(c.name, c.arguments) for c in calls] == [WEATHER]


def test_ids_depend_on_seed_and_index_alone() -> None:
    ids = call_ids("reply-1")
    assert ids(0) == call_ids("reply-1")(0)
    assert len({ids(0), ids(1), call_ids("reply-2")(0)}) == 3
    assert ids(0).startswith("call_")
    short = call_ids("reply-1", prefix="", length=9)(0)
    assert len(short) == 9
    assert short.isalnum()


CUT = [
    (QWEN, 'Hi. <tool_call>{"name": "weather", "arguments": {"city": "K', "Hi.", '{"city": "K'),
    (QWEN, '<tool_call>{"name": "wea', "", None),
    (QWEN, f"<tool_call>{CALL}</tool_call><tool_call>{{", "", None),
    (LLAMA, '{"name": "weather", "parameters": {"ci', "", '{"ci'),
    (LLAMA, '{"name": "wea', '{"name": "wea', None),  # it may be an answer in JSON
    (NAMED, '[TOOL_CALLS]weather[ARGS]{"city"', "", '{"city"'),
]


@pytest.mark.parametrize(("tool_format", "text", "content", "arguments"), CUT)
def test_a_call_that_a_limit_cuts_off_is_no_content(
    tool_format: ToolFormat, text: str, content: str, arguments: str | None
) -> None:
    for parts in ([text], list(text)):
        one = parser(tool_format)
        deltas = [d for part in parts for d in one.feed(part)] + one.finish(cut=True)
        assert "".join(d.content for d in deltas) == one.reply.content == content
        cut = one.reply.cut_call
        assert (None if cut is None else cut.arguments) == arguments
        shown = "".join(d.tool_call.arguments for d in deltas if d.tool_call is not None)
        assert shown == "".join(c.arguments for c in one.reply.tool_calls) + (arguments or "")


BARELY_BEGUN = [
    (QWEN, "<"),
    (QWEN, "\n<tool_ca"),
    (QWEN, '<tool_call>{"na'),
    (LLAMA, '{"name": "wea'),
    (NAMED, "[TOOL_"),
]


@pytest.mark.parametrize(("tool_format", "text"), BARELY_BEGUN)
def test_a_forced_call_that_a_limit_cuts_off_is_no_content_however_short(
    tool_format: ToolFormat, text: str
) -> None:
    for parts in ([text], list(text)):
        one = parser(tool_format, forced=True)
        assert [d for part in parts for d in one.feed(part)] + one.finish(cut=True) == []
        assert one.reply == Reply()
