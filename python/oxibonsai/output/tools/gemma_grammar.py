"""The grammar of a call in Gemma's notation, in which marks stand for the quotes of strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.free_text import free_text
from oxibonsai.output.tools.lark import Lark, json_value, literal
from oxibonsai.output.tools.parameters import own_schema, parameters_of, separated
from oxibonsai.output.tools.request import Tool
from oxibonsai.output.tools.schema_types import resolve

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
        """Any value: the schema is one that this notation is not held to."""
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
