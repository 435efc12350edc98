"""Qwen 2.5 and 3, Hermes: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.output.tools.call_object import expect, read_call_object, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.lark import CallGrammar, Lark
from oxibonsai.output.tools.request import Tool


class QwenFormat(ToolFormat):
    name = "qwen"
    openings = ("<tool_call>",)
    marks = ("<tool_call>", "</tool_call>")

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        first = yield from skip_space()
        yield from read_call_object(writer, first)
        # The call counts without its end: models leave it out.
        first = yield from skip_space()
        yield from expect("</tool_call>", first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        lark.call_objects(tools, "arguments")
        lark.rule(
            "block", f'"\\n" ({lark.one_of("call", tools)}) "\\n" {lark.mark("</tool_call>")}'
        )
        return CallGrammar("<tool_call>", separator="\n", repeats=True)
