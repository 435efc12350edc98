"""Values in the notation of a program, read character by character and written as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator

from oxibonsai.output.stop import StopScanner
from oxibonsai.output.tools.call_object import expect, skip_space
from oxibonsai.output.tools.json_scan import MAX_DEPTH, Malformed

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"True": "true", "False": "false", "None": "null"} | {
    w: w for w in ("true", "false", "null")
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_CODES = {"x": 2, "u": 4, "U": 8}
_MOST = 64  # characters of a number or a word

# Ends with the first character behind a value that is no white space.
Reading = Generator[None, str, str]


def python_value(text: str) -> str | None:
    """Return the JSON text of a value in Python's notation; None where the text is none."""
    pieces: list[str] = []
    values = Literals(pieces.append, quotes=("'", '"'), escapes=True, bare_keys=False)
    try:
        if not text:
            return None
        reading = values.value(text[0])
        next(reading)
        for char in text[1:]:
            reading.send(char)
        reading.send("\0")
    except Malformed:
        return None
    except StopIteration as end:
        return "".join(pieces) if end.value == "\0" else None
    return None


class Literals:
    """Reads values.

    Args:
        write: Takes pieces of the JSON text.
        quotes: Texts around a string: the same before and behind it.
        escapes: A backslash in a string begins an escape, as in Python.
        bare_keys: Keys of objects may stand without quotes; those of a call's own values always may.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        quotes: tuple[str, ...],
        escapes: bool,
        bare_keys: bool,
    ) -> None:
        self._write = write
        self._quotes = quotes
        self._escapes = escapes
        self._bare_keys = bare_keys
        self._depth = 0

    def value(self, first: str) -> Reading:
        """Return a value, of which the first character has come."""
        if first in "[{":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise Malformed
            yield from self._list() if first == "[" else self.members("}")
            self._depth -= 1
            return (yield from skip_space())
        if any(quote[0] == first for quote in self._quotes):
            yield from self._string(first)
            return (yield from skip_space())
        kept = first
        while len(kept) <= _MOST:
            char = yield
            if not (char.isascii() and (char.isalnum() or char in "+-._")):
                self._write(self._scalar(kept))
                return (yield from skip_space()) if char.isspace() else char
            kept += char
        raise Malformed

    def members(self, end: str, *, assign: str = ":") -> Generator[None, str, None]:
        """Yield keys and values up to a closing character, written as an object.

        Args:
            end: The closing character.
            assign: What stands between a key and its value.
        """
        self._write("{")
        seen: set[str] = set()
        char = yield from skip_space()
        while char != end:
            if seen:
                if char != ",":
                    raise Malformed
                self._write(", ")
                char = yield from skip_space()
            key, char = yield from self._key(char, assign)
            if key in seen or char != assign:
                raise Malformed
            seen.add(key)
            self._write(f"{json.dumps(key, ensure_ascii=False)}: ")
            first = yield from skip_space()
            char = yield from self.value(first)
        self._write("}")

    def _list(self) -> Generator[None, str, None]:
        self._write("[")
        char = yield from skip_space()
        empty = True
        while char != "]":
            if not empty:
                if char != ",":
                    raise Malformed
                self._write(", ")
                char = yield from skip_space()
            char = yield from self.value(char)
            empty = False
        self._write("]")

    def _key(self, first: str, assign: str) -> Generator[None, str, tuple[str, str]]:
        """Yield a key and the character behind it."""
        if any(quote[0] == first for quote in self._quotes):
            pieces: list[str] = []
            write, self._write = self._write, pieces.append
            yield from self._string(first)
            self._write = write
            return json.loads("".join(pieces)), (yield from skip_space())
        key = first
        while (self._bare_keys or assign != ":") and len(key) <= 4 * _MOST:
            char = yield
            if char == assign:
                return key.strip(), char
            key += char
        raise Malformed

    def _string(self, first: str) -> Generator[None, str, None]:
        quote = next(q for q in self._quotes if q[0] == first)
        yield from expect(quote[1:])
        self._write('"')
        end = StopScanner([quote])
        while end.hit is None:
            char = yield
            if char == "\\" and self._escapes:
                piece = yield from self._escape()
            else:
                piece = end.feed(char)
            if piece:
                self._write(json.dumps(piece, ensure_ascii=False)[1:-1])
        self._write('"')

    @staticmethod
    def _escape() -> Reading:
        """Return the character of an escape; an unknown one stands for itself."""
        char = yield
        digits = ""
        while len(digits) < _CODES.get(char, 0):
            digits += yield
        if not digits:
            return _ESCAPES.get(char, char if char in "\\'\"" else "\\" + char)
        try:
            found = chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise Malformed from None
        if "\ud800" <= found <= "\udfff":
            raise Malformed
        return found

    @staticmethod
    def _scalar(text: str) -> str:
        if _NUMBER.fullmatch(text):
            return text
        if text not in _WORDS:
            raise Malformed
        return _WORDS[text]
