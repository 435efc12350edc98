"""Llama 3.1 to 3.3: the text is ``{"name": ..., "parameters": {...}}``, or ``<|python_tag|>`` and it."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.output.tools.call_object import read_call_object, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import Malformed
from oxibonsai.output.tools.lark import CallGrammar, Lark
from oxibonsai.output.tools.request import Tool


class Llama3Format(ToolFormat):
    """Several calls are joined by semicolons. Code behind ``<|python_tag|>`` is content."""

    name = "llama3"
    openings = ("<|python_tag|>",)
    bare_keys = ("name", "arguments", "parameters", "id", "type")
    one_call_a_message = True
    marks = ("<|python_tag|>",)

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        while True:
            first = yield from skip_space()
            yield from read_call_object(writer, first)
            first = yield from skip_space()
            if first == "{":
                yield from read_call_object(writer, first)
            elif first not in ";,":
                raise Malformed

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        lark.call_objects(tools, "parameters")
        call = f"({lark.one_of('call', tools)})"
        lark.rule("block", f'{call} ("; " {call})*' if parallel else call)
        return CallGrammar("<|python_tag|>", separator="", repeats=False)
