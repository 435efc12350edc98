"""Mistral: ``[TOOL_CALLS][{"name": ..., "arguments": {...}}]``, newer ``[TOOL_CALLS]name[ARGS]{...}``."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.output.tools.call_object import (
    expect,
    read_arguments,
    read_call_object,
    read_until,
    skip_space,
)
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import Malformed
from oxibonsai.output.tools.lark import CallGrammar, Lark, arguments_of, literal
from oxibonsai.output.tools.request import MAX_NAME, Tool


class MistralFormat(ToolFormat):
    """Reads both forms.

    Args:
        named: What the model writes is the newer form.
    """

    name = "mistral"
    openings = ("[TOOL_CALLS]",)
    marks = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    id_length = 9

    def __init__(self, *, named: bool = False) -> None:
        self.named = named

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        first = yield from skip_space()
        if first == "[":
            yield from _read_list(writer)
        else:
            yield from _read_named(writer, first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        call = f"({lark.one_of('call', tools)})"
        if not self.named:
            lark.call_objects(tools, "arguments")
            more = f'(", " {call})*' if parallel else ""
            lark.rule("block", f'"[" {call} {more} "]"')
            return CallGrammar("[TOOL_CALLS]", separator="", repeats=False)
        for i, tool in enumerate(tools):
            head = f"{literal(tool.name)} {lark.mark('[ARGS]')}"
            lark.rule(f"call_{i}", f"{head} {arguments_of(tool)}")
        lark.rule("block", call)
        return CallGrammar("[TOOL_CALLS]", separator="", repeats=True)


def _read_list(writer: CallWriter) -> CallReader:
    while True:
        first = yield from skip_space()
        yield from read_call_object(writer, first)
        between = yield from skip_space()
        if between == "]":
            return
        if between != ",":
            raise Malformed


def _read_named(writer: CallWriter, first: str) -> CallReader:
    name, end = yield from read_until("[{", MAX_NAME)
    writer.begin()
    writer.name((first + name).strip())
    if end == "[":
        mark, _ = yield from read_until("]", len("CALL_ID"))
        if mark == "CALL_ID":
            # The model's own id; ours are unique.
            yield from read_until("[", 64)
            yield from expect("ARGS]")
        elif mark != "ARGS":
            raise Malformed
        end = yield from skip_space()
    yield from read_arguments(writer, end)
    writer.end()
