"""Calls as a name and a JSON object behind it, with marks around both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oxibonsai.output.tools.call_object import (
    expect,
    expect_loosely,
    expect_one,
    read_arguments,
    read_until,
    skip_space,
)
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.lark import CallGrammar, Lark, arguments_of
from oxibonsai.output.tools.request import MAX_NAME, Tool

_COUNTED = re.compile(r":[0-9]+\s*$")


@dataclass(frozen=True)
class NamedMarks:
    """The texts that a family of models writes around its calls.

    Attributes:
        name: Of the format.
        opening: Before the calls of a reply.
        before: Before the name of each.
        between: Between name and arguments; white space where it has new lines.
        behind: After the arguments of each.
        closing: After the last; empty where there is nothing.
        more: Between two calls.
        counted: ``:0``, ``:1`` ... stand behind the names.
        arguments_as_text: The templates want arguments as JSON text.
        no_content_beside_calls: The templates leave calls out of a message that has content.
    """

    name: str
    opening: str
    before: str
    between: str
    behind: str
    closing: str = ""
    more: str = ""
    counted: bool = False
    arguments_as_text: bool = False
    no_content_beside_calls: bool = False


_DEEPSEEK = "<\uff5ctool\u2581{}\uff5c>"
_BEGIN, _END = _DEEPSEEK.format("calls\u2581begin"), _DEEPSEEK.format("calls\u2581end")
_CALL, _CALL_END = _DEEPSEEK.format("call\u2581begin"), _DEEPSEEK.format("call\u2581end")
_SEPARATOR = _DEEPSEEK.format("sep")

DEEPSEEK_R1 = NamedMarks(
    "deepseek_r1",
    _BEGIN,
    f"{_CALL}function{_SEPARATOR}",
    "\n```json\n",
    f"\n```{_CALL_END}",
    _END,
    more="\n",
    arguments_as_text=True,
    no_content_beside_calls=True,
)
DEEPSEEK_V3 = NamedMarks("deepseek_v3", _BEGIN, _CALL, _SEPARATOR, _CALL_END, _END)
KIMI_K2 = NamedMarks(
    "kimi_k2",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>functions.",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    counted=True,
)
FUNCTIONARY = NamedMarks("functionary", "<function=", "", ">", "</function>")


class NamedCallsFormat(ToolFormat):
    """Reads calls with the marks of a family.

    Args:
        marks: Of the model.
    """

    def __init__(self, marks: NamedMarks) -> None:
        self._marks = marks
        self.name = marks.name
        self.openings = (marks.opening,)
        texts = (marks.opening, marks.before, marks.between, marks.behind, marks.closing)
        self.marks = tuple(m for text in texts for m in re.findall(r"<[^<>]*>", text))
        self.arguments_as_text = marks.arguments_as_text
        self.no_content_beside_calls = marks.no_content_beside_calls

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        marks = self._marks
        first = yield from skip_space()
        if not marks.before:
            yield from self._read_call(writer, first)
            return
        yield from expect(marks.before, first)
        while True:
            first = yield
            yield from self._read_call(writer, first)
            if not marks.closing:
                return
            first = yield from skip_space()
            if (yield from expect_one((marks.before, marks.closing), first)) == marks.closing:
                return

    def _read_call(self, writer: CallWriter, first: str) -> CallReader:
        """Read one call, from the first letter of its name."""
        marks = self._marks
        name, end = yield from read_until(marks.between[0], MAX_NAME + len(":999"))
        writer.begin()
        name = (first + name).strip()
        writer.name(_COUNTED.sub("", name) if marks.counted else name)
        yield from expect_loosely(marks.between.lstrip("\n"), None if end == "\n" else end)
        first = yield from skip_space()
        yield from read_arguments(writer, first)
        writer.end()
        first = yield from skip_space()
        yield from expect_loosely(marks.behind.lstrip("\n"), first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        marks = self._marks
        number = "/:[0-9]{1,3}/" if marks.counted else ""
        for i, tool in enumerate(tools):
            head = f"{lark.mark(marks.before + tool.name)} {number} {lark.mark(marks.between)}"
            lark.rule(f"call_{i}", f"{head} {arguments_of(tool)} {lark.mark(marks.behind)}")
        call = f"({lark.one_of('call', tools)})"
        several = parallel and bool(marks.closing)
        more = f"({lark.mark(marks.more)} {call})*" if several else ""
        lark.rule("block", f"{call} {more} {lark.mark(marks.closing)}")
        return CallGrammar(marks.opening, separator="", repeats=not marks.closing)
