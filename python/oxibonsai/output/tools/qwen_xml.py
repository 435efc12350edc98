"""Qwen 3 Coder and Qwen 3.5 onwards: ``<tool_call><function=NAME><parameter=P>VALUE</parameter>...``.

Values are plain text; the schema of the function says which of them are strings.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence

from oxibonsai.output.stop import StopScanner
from oxibonsai.output.tools.call_object import expect, read_until, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import JsonObjectScanner, Malformed, is_json, value_scanner
from oxibonsai.output.tools.lark import CallGrammar, Lark
from oxibonsai.output.tools.qwen_xml_grammar import function_body
from oxibonsai.output.tools.request import Tool
from oxibonsai.output.tools.schema_types import STRING, parameter_types

_MAX_NAME = 256
_VALUE_END = "</parameter>"
# Templates of this family print Python's own words.
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


class QwenXmlFormat(ToolFormat):
    name = "qwen_xml"
    openings = ("<tool_call>", "<function=")
    marks = ("<tool_call>", "</tool_call>")

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        if opening == "<tool_call>":
            first = yield from skip_space()
            yield from expect("<function=", first)
        name, _ = yield from read_until(">", _MAX_NAME)
        writer.begin()
        writer.name(name.strip())
        yield from _read_parameters(writer, name.strip())
        writer.end()
        first = yield from skip_space()
        yield from expect("</tool_call>", first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        for i, tool in enumerate(tools):
            lark.rule(f"call_{i}", function_body(lark, f"call_{i}", tool))
        lark.rule(
            "block", f'"\\n" ({lark.one_of("call", tools)}) "\\n" {lark.mark("</tool_call>")}'
        )
        return CallGrammar("<tool_call>", separator="\n", repeats=True)


def _read_parameters(writer: CallWriter, name: str) -> CallReader:
    writer.arguments("{")
    seen: set[str] = set()
    while True:
        first = yield from skip_space()
        yield from expect("<", first)
        char = yield
        if char == "/":
            yield from expect("function>")
            writer.arguments("}")
            return
        yield from expect("parameter=", char)
        parameter, _ = yield from read_until(">", _MAX_NAME)
        parameter = parameter.strip()
        if parameter in seen:
            raise Malformed
        writer.arguments((", " if seen else "") + json.dumps(parameter, ensure_ascii=False) + ": ")
        seen.add(parameter)
        types = parameter_types(writer.tools[name].parameters, parameter)
        if types == STRING:
            yield from _stream_string(writer)
        else:
            value = yield from _read_value()
            writer.arguments(_as_json(value, types))


def _read_value() -> Generator[None, str, str]:
    """A value without the new line before and after it; an end tag in a JSON string is text."""
    end = StopScanner([_VALUE_END])
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
            return "".join(pieces).removeprefix("\n").removesuffix("\n")
        if end.hit is not None:
            pieces.append(end.hit)
            end.reset()


def _stream_string(writer: CallWriter) -> CallReader:
    """A value as a JSON string, piece by piece."""
    writer.arguments('"')
    end = StopScanner(["\n" + _VALUE_END, _VALUE_END])
    first = yield
    piece = "" if first == "\n" else end.feed(first)
    while True:
        if piece:
            writer.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
        if end.hit is not None:
            break
        piece = end.feed((yield))
    writer.arguments('"')


def _as_json(value: str, types: frozenset[str] | None) -> str:
    """The JSON text that a value means, given the types it may have (None: any)."""
    plain = value.strip()
    plain = _PYTHON_WORDS.get(plain, plain)
    if is_json(plain) and (types is None or _type_of(plain) & (types - STRING)):
        return plain
    return json.dumps(value, ensure_ascii=False)


def _type_of(text: str) -> set[str]:
    """Types of a JSON text; a whole number is of two."""
    if text[0] in "-0123456789":
        whole = not any(c in text for c in ".eE")
        return {"number", "integer"} if whole else {"number"}
    names = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean"}
    return {names.get(text[0], "null")}
