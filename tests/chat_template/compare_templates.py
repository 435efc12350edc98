"""Renders every template of a folder as transformers does and as this project does, and compares.

    python tests/chat_template/compare_templates.py FOLDER

Each ``*.jinja`` gets ten conversations; where both refuse one, they agree. Then calls that a template
writes are read back. Prints each difference and two lines of counts; the exit status is 1 where there is a
difference.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from transformers.utils.chat_template_utils import render_jinja_template

from oxibonsai.chat_template import ChatTemplate
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.output import OutputParser, find_reasoning_tags, template_messages
from oxibonsai.output.tools import detect_tool_format, read_tools

TOKENS = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}
NOW = datetime(2026, 3, 4, 5, 6, 7)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather of a place: "rain" & <sun>.',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name, such as Köln"},
                    "days": {"type": "integer", "minimum": 1, "default": 3},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
                    "until": {"type": ["string", "null"]},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


def call(name: str, arguments: dict[str, Any], identifier: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


SYSTEM = {"role": "system", "content": "You are terse.\nAlways."}
ASK = {"role": "user", "content": "What's the weather in Köln? 🌦"}
COLOGNE = call("get_weather", {"city": "Köln", "days": 2, "tags": ["a", "<b>"]}, "abcdefghi")
CALLED = {"role": "assistant", "content": "", "tool_calls": [COLOGNE]}
RAIN = '{"rain": true, "mm": 1.5}'
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": RAIN}
TWO = {
    "role": "assistant",
    "content": "I look twice.",
    "reasoning_content": "Both at once.",
    "tool_calls": [
        call("now", {}, "aaaaaaaa1"),
        call("get_weather", {"city": "A\nB", "place": {"lat": 1.5}, "until": None}, "aaaaaaaa2"),
    ],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "aaaaaaaa1", "name": "now", "content": "12:00"},
    {"role": "tool", "tool_call_id": "aaaaaaaa2", "name": "get_weather", "content": "dry"},
]
ANSWER = {"role": "assistant", "content": "Rain."}
THOUGHT = {"role": "assistant", "content": " Wet. ", "reasoning_content": "It rains\nthere."}
TAGGED = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nDry."}
EMPTY = {"role": "user", "content": ""}

CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "one turn": ([ASK], {}),
    "system": ([SYSTEM, ASK], {}),
    "several turns": ([SYSTEM, ASK, ANSWER, {"role": "user", "content": " And now? "}], {}),
    "tools": ([SYSTEM, ASK], {"tools": TOOLS}),
    "tool result": ([ASK, CALLED, RESULT], {"tools": TOOLS}),
    "answer behind a result": (
        [SYSTEM, ASK, CALLED, RESULT, ANSWER, ASK],
        {"tools": TOOLS},
    ),
    "two calls": ([SYSTEM, ASK, TWO, *RESULTS], {"tools": TOOLS}),
    "reasoning": ([ASK, THOUGHT, ASK, TAGGED, ASK], {"enable_thinking": True}),
    "no reasoning, empty content": ([EMPTY, ANSWER, ASK], {"enable_thinking": False}),
    "no generation prompt": ([SYSTEM, ASK, ANSWER], {"add_generation_prompt": False}),
}


def transformers_text(source: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
    options = {"add_generation_prompt": True, "tools": None, **TOKENS, **options}
    rendered, _ = render_jinja_template([messages], chat_template=source, **options)
    return str(rendered[0])


def our_text(source: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
    return ChatTemplate(source, **TOKENS).render(messages, **options)


class Clock(datetime):
    """Stands still: some templates write the date."""

    @classmethod
    def now(cls, tz: Any = None) -> Clock:
        return cls(*NOW.timetuple()[:6])


def compare(name: str, source: str) -> tuple[int, int, int]:
    """Conversations that are equal, refused by both, and different."""
    equal = refused = different = 0
    tool_format = detect_tool_format(source)
    for title, (messages, options) in CONVERSATIONS.items():
        taken = template_messages(messages, tool_format=tool_format, template_source=source)
        theirs: str | None
        ours: str | None
        try:
            theirs = transformers_text(source, taken, options)
        except Exception as e:  # whatever a template raises is its refusal
            theirs, reason = None, f"{type(e).__name__}: {e}"
        try:
            ours, our_reason = our_text(source, taken, options), ""
        except OxiBonsaiError as e:
            ours, our_reason = None, str(e)
        if ours == theirs:
            equal += ours is not None
            refused += ours is None
            continue
        different += 1
        print(f"{name}, {title}:")
        if ours is None or theirs is None:
            print("   ", our_reason if ours is None else f"transformers refuses: {reason}")
        else:
            lines = difflib.unified_diff(theirs.split("\n"), ours.split("\n"), lineterm="", n=0)
            print("\n".join(f"    {line}" for line in lines))
    return equal, refused, different


def read_back(name: str, source: str) -> bool | None:
    """Whether calls that a template writes are read as they were; None where it writes none."""
    tool_format = detect_tool_format(source)
    if tool_format is None:
        return None
    tools = read_tools(TOOLS)
    results = []
    for message in (CALLED, TWO):
        if tool_format.one_call_a_message:
            message = {**message, "tool_calls": message["tool_calls"][-1:], "content": ""}
        asked, whole = (
            template_messages(m, tool_format=tool_format, template_source=source)
            for m in ([ASK], [ASK, message])
        )
        try:
            head = our_text(source, asked, {"tools": TOOLS})
            text = our_text(source, whole, {"tools": TOOLS, "add_generation_prompt": False})
        except OxiBonsaiError:
            return None
        start = len(os.path.commonprefix([head, text]))  # noqa: RUF071 - of texts
        while not text.startswith(head) and start > 0 and text[start - 1] not in "\n>":
            start -= 1
        parser = OutputParser(tool_format, tools, ids=str, reasoning=find_reasoning_tags(source))
        parser.feed(text[start:])
        parser.finish()
        got = [(c.name, json.loads(c.arguments)) for c in parser.reply.tool_calls]
        calls = [c["function"] for c in message["tool_calls"]]
        results.append(got == [(c["name"], c["arguments"]) for c in calls])
        if not results[-1]:
            print(f"{name}: {text[start:]!r} is read as {got}")
    return all(results)


def main(folder: Path) -> int:
    files = sorted(folder.glob("*.jinja"))
    with (
        patch("oxibonsai.chat_template.template.datetime", Clock),
        patch("transformers.utils.chat_template_utils.datetime", Clock),
    ):
        rows = [compare(f.name, f.read_text(encoding="utf-8")) for f in files]
    equal, refused, different = (sum(row[i] for row in rows) for i in range(3))
    print(
        f"{len(files)} templates: {equal} equal, {refused} refused by both, {different} different"
    )
    read = [read_back(f.name, f.read_text(encoding="utf-8")) for f in files]
    print(f"calls: {read.count(True)} templates read back, {read.count(False)} not")
    return 1 if different or False in read or not files else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
