"""Gemma: ``call:NAME{key:"text",n:3}`` between marks, with a mark in place of each quote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.call_object import expect, read_until, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.lark import CallGrammar, Lark, free_text, json_value, literal
from oxibonsai.output.tools.literals import Literals
from oxibonsai.output.tools.request import MAX_NAME, Tool
from oxibonsai.output.tools.schema_types import own_schema, parameters_of, resolve, separated

_SCALARS = frozenset({"number", "integer", "boolean", "null"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})
_HELD = {
    "string": frozenset({"type", "minLength", "maxLength", "pattern", "enum", "const"}),
    "array": frozenset({"type", "items"}),
    "object": frozenset({"type", "properties", "required", "additionalProperties"}),
}
_DEEPEST = 8  # levels of a value whose schema is held to
_FORBIDDEN = ":,{}[]<> \n"  # in a key


class GemmaValues:
    """Rules for the values of a call.

    Args:
        lark: Takes them.
        quote: Stands before and behind a string.
        tool: Whose call it is.
        rule: Beginning of their names.
    """

    def __init__(self, lark: Lark, quote: str, tool: Tool, rule: str) -> None:
        self._lark = lark
        self._quote = quote
        self._tool = tool
        self._rule = rule
        self._count = 0

    def arguments(self) -> str:
        """Return the rule for the text between the braces of the call.

        Raises:
            RequestError: The schema asks for what this form of a call can't be held to.
        """
        return self._members(self._tool, 0)

    def _members(self, tool: Tool, depth: int) -> str:
        items = [
            (f"{literal(f'{name}:')} {self._value(schema, depth)}", required)
            for name, schema, required in parameters_of(tool, forbidden=_FORBIDDEN)
        ]
        return separated(self._lark, self._name(), items, ",")

    def _value(self, schema: Any, depth: int) -> str:
        schema = {} if schema is True else resolve(schema, self._tool.parameters)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return self._anything(schema)
        texts = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts):
            quoted = (self._lark.mark(f"{self._quote}{t}{self._quote}") for t in texts)
            return f"({' | '.join(quoted)})"
        kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
        if kinds and kinds <= _SCALARS:
            return json_value(own_schema(self._tool, schema), strict=self._tool.strict)
        if not isinstance(kind, str) or set(schema) - _ANNOTATIONS - _HELD.get(kind, set()):
            return self._anything(schema)
        if kind == "string":
            return self._string(schema)
        if kind == "array":
            item = self._value(schema.get("items", True), depth + 1)
            name = self._name()
            self._lark.rule(name, item)
            return f'("[" ({name} ("," {name})*)? "]")'
        shared = {k: v for k, v in self._tool.parameters.items() if k in ("$defs", "definitions")}
        if not schema.get("properties"):
            return self._anything(schema)
        inner = Tool(self._tool.name, {**schema, **shared}, self._tool.strict)
        return f'("{{" {self._members(inner, depth + 1)} "}}")'

    def _string(self, schema: Mapping[str, Any]) -> str:
        text = free_text(self._lark, self._name(), schema, self._quote, strict=self._tool.strict)
        return f"({self._lark.mark(self._quote)} {text})"

    def _anything(self, schema: Any) -> str:
        """Return the rule of any value: the schema is one that this notation is not held to."""
        if self._tool.strict and schema not in ({}, True):
            raise RequestError(
                f"parameters of the tool {self._tool.name}: this model's calls can't be held to "
                f"{str(schema)[:80]}"
            )
        if not self._lark.has("any_value"):
            key = r"/[^:,{}\[\]<> \n]+/"
            text = free_text(self._lark, "any_text", {}, self._quote, strict=True)
            self._lark.rule("any_string", f"{self._lark.mark(self._quote)} {text}")
            self._lark.rule("any_member", f'({key} | any_string) ":" any_value')
            scalar = '%json {"type": ["number", "boolean", "null"]}'
            self._lark.rule("any_scalar", scalar)
            self._lark.rule("any_list", '"[" (any_value ("," any_value)*)? "]"')
            self._lark.rule("any_object", '"{" (any_member ("," any_member)*)? "}"')
            self._lark.rule("any_value", "any_scalar | any_string | any_list | any_object")
        return "any_value"

    def _name(self) -> str:
        self._count += 1
        return f"{self._rule}_v{self._count}"


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
