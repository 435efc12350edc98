"""Calls of models whose chat template knows no tools: ``{"tool_calls": [{"name", "arguments"}, ...]}``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from oxibonsai.output.tools.call_object import expect, read_call_object, read_list, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.lark import CallGrammar, Lark
from oxibonsai.output.tools.request import Tool

_KEY = "tool_calls"


class GenericFormat(ToolFormat):
    """The whole text is the JSON object; any other text is an answer."""

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
