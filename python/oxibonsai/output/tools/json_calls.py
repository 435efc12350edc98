"""Calls as JSON objects between two marks: in a list, or one below the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from oxibonsai.output.tools.call_object import (
    expect,
    read_arguments,
    read_call_object,
    read_list,
    read_until,
    skip_space,
)
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import Malformed
from oxibonsai.output.tools.lark import CallGrammar, Lark, arguments_of, literal
from oxibonsai.output.tools.request import MAX_NAME, Tool


@dataclass(frozen=True)
class JsonMarks:
    """The texts that a family of models writes around its calls.

    Attributes:
        name: Of the format.
        opening: Before the calls.
        closing: Behind them; empty where there is nothing.
        listed: The calls are a list; else each stands on its own line.
        name_key: Key of the function's name.
        arguments_key: Key of its arguments.
    """

    name: str
    opening: str
    closing: str = ""
    listed: bool = True
    name_key: str = "name"
    arguments_key: str = "arguments"


JSON_MARKS = (
    JsonMarks("granite", "<|tool_call|>"),
    JsonMarks("phi4", "<|tool_call|>", "<|/tool_call|>"),
    JsonMarks("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    JsonMarks("apriel", "<tool_calls>", "</tool_calls>"),
    JsonMarks("minimax_m1", "<tool_calls>", "</tool_calls>", listed=False),
    JsonMarks("functools", "functools"),
    JsonMarks(
        "command_r",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        name_key="tool_name",
        arguments_key="parameters",
    ),
)


class JsonCallsFormat(ToolFormat):
    """Reads a list and lines alike.

    Args:
        marks: Of the model.
    """

    def __init__(self, marks: JsonMarks) -> None:
        self._marks = marks
        self.name = marks.name
        self.openings = (marks.opening,)
        self.marks = tuple(filter(None, (marks.opening, marks.closing)))

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        first = yield from skip_space()
        if first == "[":
            yield from self._read_list(writer)
            if not self._marks.closing:
                return
            first = yield from skip_space()
        else:
            while first == "{":
                yield from read_call_object(writer, first, name_key=self._marks.name_key)
                first = yield from skip_space()
        # The calls count without their end: models leave it out.
        yield from expect(self._marks.closing or "[", first)

    def _read_list(self, writer: CallWriter) -> CallReader:
        while True:
            first = yield from skip_space()
            yield from read_call_object(writer, first, name_key=self._marks.name_key)
            between = yield from skip_space()
            if between == "]":
                return
            if between != ",":
                raise Malformed

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        marks = self._marks
        lark.call_objects(tools, marks.arguments_key, name=marks.name_key)
        call = f"({lark.one_of('call', tools)})"
        closing = lark.mark(marks.closing)
        if marks.listed:
            more = f'(", " {call})*' if parallel else ""
            lark.rule("block", f'"[" {call} {more} "]" {closing}')
        else:
            more = f'({call} "\\n")*' if parallel else ""
            lark.rule("block", f'"\\n" {call} "\\n" {more} {closing}')
        return CallGrammar(marks.opening, separator="", repeats=False)

    def spell(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        marks = self._marks
        keys = (marks.name_key, marks.arguments_key)
        each = [json.dumps(dict(zip(keys, c, strict=True)), ensure_ascii=False) for c in calls]
        if marks.listed:
            return f"{marks.opening}[{', '.join(each)}]{marks.closing}"
        return "\n".join([marks.opening, *each, marks.closing])


class ApertusFormat(ToolFormat):
    """Apertus: ``<|tools_prefix|>[{"NAME": {...}}, ...]<|tools_suffix|>``."""

    name = "apertus"
    openings = ("<|tools_prefix|>",)
    marks = ("<|tools_prefix|>", "<|tools_suffix|>")

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        first = yield from skip_space()
        if first != "[":
            raise Malformed
        yield from read_list(partial(_read_keyed, writer))
        first = yield from skip_space()
        yield from expect("<|tools_suffix|>", first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        for i, tool in enumerate(tools):
            head = literal(f'{{"{tool.name}": ')
            lark.rule(f"call_{i}", f'{head} {arguments_of(tool)} "}}"')
        call = f"({lark.one_of('call', tools)})"
        more = f'(", " {call})*' if parallel else ""
        lark.rule("block", f'"[" {call} {more} "]" {lark.mark("<|tools_suffix|>")}')
        return CallGrammar("<|tools_prefix|>", separator="", repeats=False)


def _read_keyed(writer: CallWriter, first: str) -> CallReader:
    """Read ``{"NAME": {...}}``."""
    yield from expect("{", first)
    first = yield from skip_space()
    yield from expect('"', first)
    name, _ = yield from read_until('"', MAX_NAME)
    writer.begin()
    writer.name(name)
    first = yield from skip_space()
    yield from expect(":", first)
    first = yield from skip_space()
    yield from read_arguments(writer, first)
    first = yield from skip_space()
    yield from expect("}", first)
    writer.end()
