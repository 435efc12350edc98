"""Calls whose values stand between tags: ``<function=NAME><parameter=P>VALUE</parameter>...``.

Values are plain text; the schema of the function says which of them are strings, or the tag does.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from oxibonsai.output.stop import StopScanner
from oxibonsai.output.tools.call_object import (
    expect,
    expect_loosely,
    expect_one,
    read_until,
    skip_space,
)
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_tags import QWEN_XML, CallTags
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import JsonObjectScanner, Malformed, is_json, value_scanner
from oxibonsai.output.tools.lark import CallGrammar, Lark, free_text, json_value
from oxibonsai.output.tools.literals import python_value
from oxibonsai.output.tools.request import Tool
from oxibonsai.output.tools.schema_types import (
    STRING,
    own_schema,
    parameter_types,
    parameters_of,
    resolve,
)

# Keywords that leave every value possible.
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})


def function_body(lark: Lark, tags: CallTags, rule: str, tool: Tool) -> str:
    """Return the function's name, the parameters in the order of the schema, the function's end.

    Args:
        lark: Takes the rules of the values.
        tags: Around names and values.
        rule: Beginning of their names.
        tool: The function.

    Raises:
        RequestError: The schema asks for what this form of a call can't be held to.
    """
    parts = [lark.mark(f"{tags.function}{tool.name}{tags.named}")]
    for i, (name, schema, required) in enumerate(parameters_of(tool, forbidden='<>\n"')):
        value = _Value(lark, tags, tool, name, schema)
        line = "\n" if tags.lines else ""
        head = lark.mark(f"{tags.parameter}{name}{tags.valued}{value.type}{line}")
        lark.rule(f"{rule}_p{i}", f'{head} {value.rule(f"{rule}_{i}")} "\\n"')
        parts.append(f"{rule}_p{i}" + ("" if required else "?"))
    return " ".join([*parts, lark.mark(tags.function_end)])


class _Value:
    """A value and its end tag.

    Args:
        lark: Takes its rules.
        tags: Around it.
        tool: Whose it is.
        name: Of the parameter.
        schema: Of the value.

    Attributes:
        type: What the tag says of it.
    """

    def __init__(self, lark: Lark, tags: CallTags, tool: Tool, name: str, schema: Any) -> None:
        self._lark = lark
        self._tool = tool
        self._end = ("\n" if tags.lines else "") + tags.value_end
        root = tool.parameters
        schema = {} if schema is True else resolve(schema, root)
        if schema is None and not tool.strict:
            schema = {}  # of a reference to elsewhere nothing is known
        self._schema = schema
        free = isinstance(schema, Mapping) and set(schema) <= _ANNOTATIONS
        types = STRING if free else parameter_types(root, name)
        self._is_text = types is not None and "string" in types and isinstance(schema, Mapping)
        self._is_text &= types == STRING or not tags.typed
        self._only_text = types == STRING
        self.type = f'"{str(self._is_text).lower()}">' if tags.typed else ""

    def rule(self, name: str) -> str:
        """Return the rule that matches the value; add a rule of that name where one is needed."""
        schema = self._schema
        if self._is_text:
            texts = schema.get("enum", [schema["const"]] if "const" in schema else None)
            if isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts):
                return "(" + " | ".join(self._lark.mark(t + self._end) for t in texts) + ")"
            if self._only_text or not set(schema) & {"enum", "const", "anyOf", "oneOf"}:
                return free_text(self._lark, name, schema, self._end, strict=self._tool.strict)
        value = json_value(own_schema(self._tool, schema), strict=self._tool.strict)
        return f"{value} {self._lark.mark(self._end)}"


_MAX_NAME = 256


class TaggedFormat(ToolFormat):
    """Reads calls with the tags of a family.

    Args:
        tags: Of the model.
    """

    def __init__(self, tags: CallTags = QWEN_XML) -> None:
        self._tags = tags
        self.name = tags.name
        # Some models leave the outer tag out.
        alone = (tags.function,) if tags.function.endswith("=") else ()
        self.openings = (tags.opening, *alone)
        self.marks = tags.marks

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        tags = self._tags
        if opening == tags.opening:
            first = yield from skip_space()
            if tags.function:
                yield from expect(tags.function, first)
                first = yield
        else:
            first = yield
        while True:
            yield from self._read_function(writer, first)
            if not tags.function_end:
                return
            first = yield from skip_space()
            ends = (tags.closing, tags.function) if tags.several else (tags.closing,)
            if (yield from expect_one(ends, first)) == tags.closing:
                return
            first = yield

    def _read_function(self, writer: CallWriter, first: str) -> CallReader:
        """Return a call from the first letter of its name to its end."""
        tags = self._tags
        # Without an end of its own, a function's name ends at the first tag or line.
        ends = tags.named[0] if tags.function_end else "\n<"
        name, end = yield from read_until(ends, _MAX_NAME)
        name = (first + name).strip()
        writer.begin()
        writer.name(name)
        yield from expect_loosely(tags.named[1:])
        parameters = _Parameters(tags, writer, name)
        yield from parameters.read("<" if end == "<" else None)
        writer.end()

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        tags = self._tags
        for i, tool in enumerate(tools):
            lark.rule(f"call_{i}", function_body(lark, tags, f"call_{i}", tool))
        call = f"({lark.one_of('call', tools)})"
        before = "" if not tags.function else '"\\n"'
        between = '"\\n"' if tags.function_end else ""
        several = f"({between} {call})*" if parallel and tags.several else ""
        lark.rule("block", f"{before} {call} {several} {between} {lark.mark(tags.closing)}")
        return CallGrammar(tags.opening, separator="\n", repeats=not tags.several)


class _Parameters:
    """Reads the values of a call and writes them as JSON.

    Args:
        tags: Around them.
        writer: Takes the arguments.
        function: Whose they are.
    """

    def __init__(self, tags: CallTags, writer: CallWriter, function: str) -> None:
        self._tags = tags
        self._writer = writer
        self._schema = writer.tools[function].parameters
        self._seen: set[str] = set()

    def read(self, first: str | None) -> CallReader:
        """Read up to the end of the function, of which the first character may have come."""
        tags = self._tags
        end = tags.function_end or tags.closing
        self._writer.arguments("{")
        while True:
            char = first if first is not None else (yield from skip_space())
            first = None
            if (yield from expect_one((tags.parameter, end), char)) == end:
                self._writer.arguments("}")
                return
            name, _ = yield from read_until(tags.valued[0], _MAX_NAME)
            name = name.strip()
            if name in self._seen:
                raise Malformed
            types = parameter_types(self._schema, name)
            if tags.typed:
                yield from expect(tags.valued[1:])
                types = yield from _stated_types(types)
            else:
                yield from expect_loosely(tags.valued[1:])
            comma = ", " if self._seen else ""
            self._writer.arguments(f"{comma}{json.dumps(name, ensure_ascii=False)}: ")
            self._seen.add(name)
            if types == STRING:
                yield from self._stream_string()
            else:
                value = yield from self._read_value()
                self._writer.arguments(_as_json(value, types))

    def _read_value(self) -> Generator[None, str, str]:
        """Yield a value that is no plain string; an end tag in a JSON string is text."""
        end = StopScanner([self._tags.value_end])
        scanner: JsonObjectScanner | None = value_scanner()
        pieces: list[str] = []
        while True:
            char = yield
            in_string = scanner is not None and scanner.in_string
            pieces.append(end.feed(char))
            try:
                if scanner is not None:
                    scanner.push(char)
            except Malformed:
                scanner = None
            if end.hit is not None and not in_string:
                value = "".join(pieces)
                return value.removeprefix("\n").removesuffix("\n") if self._tags.lines else value
            if end.hit is not None:
                pieces.append(end.hit)
                end.reset()

    def _stream_string(self) -> CallReader:
        """Return a value as a JSON string, piece by piece."""
        self._writer.arguments('"')
        ends = [self._tags.value_end]
        end = StopScanner([f"\n{ends[0]}", *ends] if self._tags.lines else ends)
        first = yield
        piece = "" if first == "\n" and self._tags.lines else end.feed(first)
        while True:
            if piece:
                self._writer.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
            if end.hit is not None:
                break
            piece = end.feed((yield))
        self._writer.arguments('"')


def _stated_types(types: frozenset[str] | None) -> Generator[None, str, frozenset[str] | None]:
    """Read ``"true">`` or ``"false">``: whether the value is a string."""
    yield from expect('"')
    stated, _ = yield from read_until('"', len("false"))
    yield from expect(">")
    if stated == "true":
        return STRING
    if stated != "false":
        raise Malformed
    return None if types is None or types == STRING else types - STRING


def _as_json(value: str, types: frozenset[str] | None) -> str:
    """Return the JSON text that a value means, given the types it may have (None: any)."""
    plain = value.strip()
    if not is_json(plain):
        # Templates of these families print values as Python does.
        plain = python_value(plain) or ""
    if plain and (types is None or _type_of(plain) & (types - STRING)):
        return plain
    return json.dumps(value, ensure_ascii=False)


def _type_of(text: str) -> set[str]:
    """Return the types of a JSON text; a whole number is of two."""
    if text[0] in "-0123456789":
        whole = not any(c in text for c in ".eE")
        return {"number", "integer"} if whole else {"number"}
    names = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean"}
    return {names.get(text[0], "null")}
