"""A strict check of JSON text, character by character, in constant time for each."""

from __future__ import annotations

import re
from collections.abc import Callable

# Readers of JSON recurse; this much nesting all of them can take.
MAX_DEPTH = 200

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPACE = " \t\n\r"
_LITERALS = {"t": "true", "f": "false", "n": "null"}


class Malformed(Exception):
    """A character that may not come here."""


class JsonObjectScanner:
    """Follows the text of one JSON object (RFC 8259); :meth:`push` raises where it is none.

    Attributes:
        done: The closing brace has come.
        key: JSON text between the quotes of the outermost object's current key.
        in_value: The last character belongs to a value of the outermost object.
    """

    def __init__(self) -> None:
        self.done = False
        self.key = ""
        self.in_value = False
        self._stack: list[str] = []
        self._state: Callable[[str], None] = self._opening
        self._text: list[str] = []  # of a key or a number, on the way
        self._literal = ""  # what is left of true, false or null
        self._digits = 0  # of a \u escape, to come
        self._is_key = False
        self._member = False  # a value of the outermost object has begun and not ended

    def push(self, char: str) -> None:
        """Take the next character.

        Raises:
            Malformed: It may not come here, or is nested too deep.
        """
        self.in_value = self._member
        self._state(char)

    @property
    def in_string(self) -> bool:
        """Whether a string has begun and not ended."""
        return self._state in (self._in_string, self._escaped)

    def _opening(self, char: str) -> None:
        if char != "{":
            raise Malformed
        self._open(char)

    def _open(self, char: str) -> None:
        if len(self._stack) == MAX_DEPTH:
            raise Malformed
        self._stack.append(char)
        self._state = self._first_key if char == "{" else self._first_item

    def _close(self, char: str) -> None:
        if self._stack[-1] + char not in ("{}", "[]"):
            raise Malformed
        self._stack.pop()
        self._end_value()
        self.done = not self._stack

    def _end_value(self) -> None:
        self._state = self._after_value
        self._member = len(self._stack) > 1

    def _first_key(self, char: str) -> None:
        if char == "}":
            self._close(char)
        else:
            self._next_key(char)

    def _next_key(self, char: str) -> None:
        if char == '"':
            self._is_key, self._text = True, []
            self._state = self._in_string
        elif char not in _SPACE:
            raise Malformed

    def _colon(self, char: str) -> None:
        if char == ":":
            self._state = self._value
        elif char not in _SPACE:
            raise Malformed

    def _first_item(self, char: str) -> None:
        if char == "]":
            self._close(char)
        else:
            self._value(char)

    def _value(self, char: str) -> None:
        if char in _SPACE:
            return
        self.in_value = self._member = True
        if char in "{[":
            self._open(char)
        elif char == '"':
            self._is_key = False
            self._state = self._in_string
        elif char in _LITERALS:
            self._literal = _LITERALS[char][1:]
            self._state = self._in_literal
        elif char in "-0123456789":
            self._text = [char]
            self._state = self._in_number
        else:
            raise Malformed

    def _after_value(self, char: str) -> None:
        if self.done:
            raise Malformed
        if char == ",":
            self._state = self._next_key if self._stack[-1] == "{" else self._value
        elif char in "}]":
            self._close(char)
        elif char not in _SPACE:
            raise Malformed

    def _in_string(self, char: str) -> None:
        if char == '"':
            self._end_string()
            return
        if char < " ":
            raise Malformed
        if self._is_key:
            self._text.append(char)
        if char == "\\":
            self._state = self._escaped

    def _escaped(self, char: str) -> None:
        if self._is_key:
            self._text.append(char)
        if self._digits:
            if char not in "0123456789abcdefABCDEF":
                raise Malformed
            self._digits -= 1
        elif char == "u":
            self._digits = 4
        elif char not in '"\\/bfnrt':
            raise Malformed
        if not self._digits:
            self._state = self._in_string

    def _end_string(self) -> None:
        if not self._is_key:
            self._end_value()
            return
        self._state = self._colon
        if len(self._stack) == 1:
            self.key = "".join(self._text)

    def _in_literal(self, char: str) -> None:
        if char != self._literal[0]:
            raise Malformed
        self._literal = self._literal[1:]
        if not self._literal:
            self._end_value()

    def _in_number(self, char: str) -> None:
        if char in "0123456789+-.eE":
            self._text.append(char)
            return
        if not _NUMBER.fullmatch("".join(self._text)):
            raise Malformed
        self._end_value()
        self.in_value = self._member
        self._after_value(char)


def value_scanner() -> JsonObjectScanner:
    """Return a scanner for one JSON value without the object around it."""
    scanner = JsonObjectScanner()
    for char in '{"":':
        scanner.push(char)
    return scanner


def is_json(text: str) -> bool:
    """Return whether a text is one JSON value."""
    scanner = value_scanner()
    try:
        for char in text.strip(_SPACE):
            scanner.push(char)
            if not scanner.in_value:
                return False
        scanner.push("}")
    except Malformed:
        return False
    return scanner.done
