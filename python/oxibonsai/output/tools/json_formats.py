"""Calls as one JSON object each: Llama 3, Qwen and Hermes, Mistral, models without tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


class Llama3Format(ToolFormat):
    """Llama 3.1 to 3.3: the text is ``{"name": ..., "parameters": {...}}``, or ``<|python_tag|>`` and it.

    Several calls are joined by semicolons. Code behind ``<|python_tag|>`` is content.
    """

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


class QwenFormat(ToolFormat):
    """Qwen 2.5 and 3, Hermes: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

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


_KEY = "tool_calls"


class GenericFormat(ToolFormat):
    """Models whose template knows no tools: ``{"tool_calls": [{"name", "arguments"}, ...]}``.

    The whole text is the JSON object; any other text is an answer.
    """

    name = "generic"
    openings = ()
    bare_keys = (_KEY,)
    marks = ()

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        for text in ("{", f'"{_KEY}"', ":", "["):
            first = yield from skip_space()
            yield from expect(text, first)
        yield from read_list(partial(read_call_object, writer))
        first = yield from skip_space()
        yield from expect("}", first)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        lark.call_objects(tools, "arguments")
        call = f"({lark.one_of('call', tools)})"
        more = f'(", " {call})*' if parallel else ""
        head = lark.head("{", f'"{_KEY}"', ": [")
        lark.rule("block", f'{head} {call} {more} "]}}"')
        return CallGrammar("", separator="", repeats=False)

    def spell(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return json.dumps({_KEY: listed}, ensure_ascii=False)

    @staticmethod
    def instructions(tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the text that tells the model of its tools.

        Args:
            tools: In the form of OpenAI's chat API.
        """
        listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False, indent=2)
        form = json.dumps({_KEY: [{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}]})
        return (
            f"You can call these functions:\n{listed}\n\n"
            f"To call functions, answer with a JSON object of this form and nothing else:\n{form}\n"
            "You are then told their results. If you need no function, answer in plain text."
        )


class MistralFormat(ToolFormat):
    """Mistral: ``[TOOL_CALLS][{"name": ..., "arguments": {...}}]``, newer ``[TOOL_CALLS]name[ARGS]{...}``.

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
