"""Gemma: ``call:NAME{key:"text",n:3}`` between marks, with a mark in place of each quote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oxibonsai.output.tools.call_object import expect, read_until, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.gemma_grammar import GemmaValues
from oxibonsai.output.tools.lark import CallGrammar, Lark, literal
from oxibonsai.output.tools.literals import Literals
from oxibonsai.output.tools.request import MAX_NAME, Tool


@dataclass(frozen=True)
class GemmaMarks:
    """The texts that a model of the family writes around its calls and texts."""

    name: str
    opening: str
    closing: str
    quote: str


GEMMA4 = GemmaMarks("gemma4", "<|tool_call>", "<tool_call|>", '<|"|>')
FUNCTION_GEMMA = GemmaMarks(
    "function_gemma", "<start_function_call>", "<end_function_call>", "<escape>"
)


class GemmaFormat(ToolFormat):
    """Reads calls with the marks of a model.

    Args:
        marks: Of the model.
    """

    def __init__(self, marks: GemmaMarks) -> None:
        self._marks = marks
        self.name = marks.name
        self.openings = (marks.opening,)
        self.marks = (marks.opening, marks.closing, marks.quote)

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        first = yield from skip_space()
        yield from expect("call:", first)
        name, _ = yield from read_until("{", MAX_NAME)
        writer.begin()
        writer.name(name.strip())
        quotes = (self._marks.quote,)
        values = Literals(writer.arguments, quotes=quotes, escapes=False, bare_keys=True)
        yield from values.members("}")
        writer.end()
        first = yield from skip_space()
        yield from expect(self._marks.closing, first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        for i, tool in enumerate(tools):
            inner = GemmaValues(lark, self._marks.quote, tool, f"call_{i}").arguments()
            lark.rule(f"call_{i}", f'{literal(f"call:{tool.name}{{")} {inner} "}}"')
        call = f"({lark.one_of('call', tools)})"
        lark.rule("block", f"{call} {lark.mark(self._marks.closing)}")
        return CallGrammar(self._marks.opening, separator="", repeats=True)
