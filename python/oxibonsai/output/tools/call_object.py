"""Readers that the formats share: white space, fixed texts, a call as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence

from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import JsonObjectScanner, Malformed

_ARGUMENTS = ("arguments", "parameters")
# What else models put into a call; it says nothing that is not known.
_IGNORED = ("id", "type", "tool_call_id")


def skip_space() -> Generator[None, str, str]:
    """Yield the first character that is no white space."""
    while True:
        char = yield
        if not char.isspace():
            return char


def expect(text: str, first: str | None = None) -> Generator[None, str, None]:
    """Expect exactly this text, of which the first character may have come."""
    for i, wanted in enumerate(text):
        char = first if i == 0 and first is not None else (yield)
        if char != wanted:
            raise Malformed


def expect_loosely(text: str, first: str | None = None) -> Generator[None, str, None]:
    """Expect this text, with any white space for its new lines, and before it if nothing has come."""
    for part in filter(None, text.split("\n")):
        yield from expect(part, first if first is not None else (yield from skip_space()))
        first = None


def expect_one(texts: Sequence[str], first: str) -> Generator[None, str, str]:
    """Expect one of some texts, none of which another begins with; its first character has come."""
    read = first
    while True:
        if read in texts:
            return read
        if not any(text.startswith(read) for text in texts):
            raise Malformed
        read += yield


def read_until(ends: str, most: int) -> Generator[None, str, tuple[str, str]]:
    """Return the text before one of some characters, and that character.

    Args:
        ends: The characters.
        most: Characters before it.
    """
    kept: list[str] = []
    while len(kept) <= most:
        char = yield
        if char in ends:
            return "".join(kept), char
        kept.append(char)
    raise Malformed


def read_arguments(writer: CallWriter, first: str) -> Generator[None, str, None]:
    """Yield a JSON object, all of it arguments."""
    scanner = JsonObjectScanner()
    char = first
    while True:
        scanner.push(char)
        writer.arguments(char)
        if scanner.done:
            return
        char = yield


def read_list(read_one: Callable[[str], Generator[None, str, None]]) -> Generator[None, str, None]:
    """Yield a list with commas, up to its ``]``; its ``[`` has come.

    Args:
        read_one: Reads a member, whose first character it is given.
    """
    between = ","
    while between == ",":
        first = yield from skip_space()
        yield from read_one(first)
        between = yield from skip_space()
    if between != "]":
        raise Malformed


def read_call_object(
    writer: CallWriter, first: str, *, name_key: str = "name"
) -> Generator[None, str, None]:
    """Read ``{"name": ..., "arguments": {...}}``, the members in any order.

    ``parameters`` means ``arguments``; arguments may be the text of an object in a string, or null.
    """
    writer.begin()
    scanner = JsonObjectScanner()
    members = _Members(writer, name_key)
    char = first
    while True:
        scanner.push(char)
        members.push(scanner.key, char if scanner.in_value else None)
        if scanner.done:
            writer.end()
            return
        char = yield


class _Members:
    """Sorts the characters of a call's values by what they mean."""

    def __init__(self, writer: CallWriter, name_key: str) -> None:
        self._writer = writer
        self._name_key = name_key
        self._seen: set[str] = set()
        self._key: str | None = None
        self._value: list[str] = []
        self._streams = False

    def push(self, key: str, char: str | None) -> None:
        """Take a character of the value of a key, or None between values."""
        if char is None:
            if self._key is not None:
                self._end(self._key)
            self._key = None
            return
        if self._key is None:
            self._begin(key, char)
        if self._streams:
            self._writer.arguments(char)
        else:
            self._value.append(char)

    def _begin(self, key: str, char: str) -> None:
        meaning = "arguments" if key in _ARGUMENTS else "name" if key == self._name_key else key
        if meaning in self._seen or meaning not in ("name", "arguments", *_IGNORED):
            raise Malformed
        self._seen.add(meaning)
        self._key, self._value = meaning, []
        self._streams = meaning == "arguments" and char == "{"

    def _end(self, key: str) -> None:
        if self._streams or key in _IGNORED:
            return
        text = "".join(self._value)
        if key == "name":
            self._writer.name(_string(text))
        elif text != "null":
            scanner = JsonObjectScanner()
            inner = _string(text)
            for char in inner:
                scanner.push(char)
            if not scanner.done:
                raise Malformed
            self._writer.arguments(inner)


def _string(text: str) -> str:
    """Return the string that a JSON text stands for."""
    if text[0] != '"':
        raise Malformed
    value: str = json.loads(text)
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise Malformed
    return value
