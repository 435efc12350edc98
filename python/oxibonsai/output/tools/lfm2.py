"""LFM 2: ``<|tool_call_start|>[NAME(a=1, b='text'), ...]<|tool_call_end|>``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from oxibonsai.output.tools.call_object import expect, read_list, read_until, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.lark import CallGrammar, Lark, json_value, literal
from oxibonsai.output.tools.literals import Literals
from oxibonsai.output.tools.request import MAX_NAME, Tool
from oxibonsai.output.tools.schema_types import own_schema, parameters_of, separated


class Lfm2Format(ToolFormat):
    """Calls in Python's notation. Where generation is held to calls, values are JSON."""

    name = "lfm2"
    openings = ("<|tool_call_start|>",)
    marks = ("<|tool_call_start|>", "<|tool_call_end|>")

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        first = yield from skip_space()
        yield from expect("[", first)
        yield from read_list(partial(_read_call, writer))
        first = yield from skip_space()
        yield from expect("<|tool_call_end|>", first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        for i, tool in enumerate(tools):
            items = []
            for name, schema, required in parameters_of(tool, forbidden="(),= \n'\""):
                value = json_value(own_schema(tool, schema), strict=tool.strict)
                items.append((f"{literal(f'{name}=')} {value}", required))
            inner = separated(lark, f"call_{i}", items, ", ")
            lark.rule(f"call_{i}", f'{literal(f"{tool.name}(")} {inner} ")"')
        call = f"({lark.one_of('call', tools)})"
        more = f'(", " {call})*' if parallel else ""
        lark.rule("block", f'"[" {call} {more} "]" {lark.mark("<|tool_call_end|>")}')
        return CallGrammar("<|tool_call_start|>", separator="", repeats=False)

    def spell(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        each = (f"{name}({', '.join(f'{k}={v!r}' for k, v in f.items())})" for name, f in calls)
        return f"<|tool_call_start|>[{', '.join(each)}]<|tool_call_end|>"


def _read_call(writer: CallWriter, first: str) -> CallReader:
    """Read ``NAME(a=1, b='text')``."""
    name, _ = yield from read_until("(", MAX_NAME)
    writer.begin()
    writer.name((first + name).strip())
    values = Literals(writer.arguments, quotes=("'", '"'), escapes=True, bare_keys=False)
    yield from values.members(")", assign="=")
    writer.end()
