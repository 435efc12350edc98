"""Grammars of calls in llguidance's dialect of Lark, free text up to a fixed end among them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.request import Tool
from oxibonsai.structured.described import described
from oxibonsai.structured.loosened import loosened


@dataclass(frozen=True)
class CallGrammar:
    """How the blocks of a format follow each other.

    Attributes:
        opening: Text before a block; a bare format may leave it out.
        separator: Text between blocks.
        repeats: A reply may have several blocks.
    """

    opening: str
    separator: str
    repeats: bool


class Lark:
    """A grammar on the way: rules in their order.

    Args:
        special_tokens: Texts that are one special token in the model's vocabulary, and its id.
            llguidance matches such a token by its id alone, never by its letters.
        beside_json: JSON of a schema may come in place of a call. What begins both has to be the
            same terminals then, while beside free text a call is told by one long terminal.
    """

    def __init__(self, special_tokens: Mapping[str, int], *, beside_json: bool = False) -> None:
        self._special_tokens = special_tokens
        self._beside_json = beside_json
        self._rules: list[str] = []

    def rule(self, head: str, body: str) -> None:
        """Add a rule or, with a name in capitals, a terminal."""
        self._rules.append(f"{head}: {body}\n")

    def has(self, head: str) -> bool:
        """Return whether there is a rule of that name."""
        return any(rule.startswith(f"{head}:") for rule in self._rules)

    def is_special(self, text: str) -> bool:
        """Return whether a text is one special token."""
        return text in self._special_tokens

    def mark(self, text: str) -> str:
        """Return a fixed text of the format: its tokens, and the letters between them."""
        parts = self._cut(text)
        return " ".join(f"<[{self._special_tokens[p]}]>" if s else literal(p) for p, s in parts)

    def holds_special(self, text: str) -> bool:
        """Return whether a special token is part of a text."""
        return any(special for _, special in self._cut(text))

    def from_special(self, text: str) -> str:
        """Return a text from its first special token on."""
        before = self._cut(text)[0]
        return text if before[1] else text[len(before[0]) :]

    def _cut(self, text: str) -> list[tuple[str, bool]]:
        """Return the parts of a text, and which of them are special tokens: at each place the longest."""
        parts: list[tuple[str, bool]] = []
        start = at = 0
        while at < len(text):
            sizes = range(len(text) - at, 0, -1)
            size = next((n for n in sizes if text[at : at + n] in self._special_tokens), 0)
            if size:
                parts += [(text[start:at], False), (text[at : at + size], True)]
                start = at + size
            at += max(size, 1)
        return [(p, s) for p, s in [*parts, (text[start:], False)] if p]

    def head(self, *pieces: str) -> str:
        """Return the rule of how a JSON object of a call begins."""
        return " ".join(map(literal, pieces if self._beside_json else ["".join(pieces)]))

    def call_objects(self, tools: Sequence[Tool], arguments: str, *, name: str = "name") -> None:
        """Add the rules ``call_0``, ... of calls as JSON objects, name and arguments under their keys."""
        for i, tool in enumerate(tools):
            called = json.dumps(tool.name)
            head = self.head("{", f'"{name}"', ": ", called, ", ", f'"{arguments}"', ": ")
            self.rule(f"call_{i}", f'{head} {arguments_of(tool)} "}}"')

    @staticmethod
    def one_of(name: str, tools: Sequence[Tool]) -> str:
        """Return an alternative of the rules of all tools."""
        return " | ".join(f"{name}_{i}" for i in range(len(tools)))

    def text(self) -> str:
        """Return the grammar so far."""
        return "".join(self._rules)


def literal(text: str) -> str:
    """Return a rule for exactly this text."""
    return json.dumps(text, ensure_ascii=False)


def pattern(text: str) -> str:
    """Return exactly this text, for the inside of a regular expression."""
    return "".join(c if c.isalnum() and c.isascii() else f"\\x{{{ord(c):x}}}" for c in text)


def arguments_of(tool: Tool) -> str:
    """Return a JSON text that the schema of a tool's arguments accepts."""
    return json_value(tool.parameters, strict=tool.strict)


def json_value(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Return a JSON text that a schema accepts, as its author means it.

    Args:
        schema: Of it.
        strict: Refuse keywords that are not enforced; else they are left out.

    Raises:
        RequestError: The schema is no JSON itself, or malformed.
    """
    schema = described(schema, strict=strict)
    try:
        return f"%json {json.dumps(schema, ensure_ascii=False, allow_nan=False)}"
    except RecursionError as e:
        raise RequestError("the parameters of a tool are nested too deep") from e
    except (TypeError, ValueError) as e:
        raise RequestError(f"the parameters of a tool are no JSON: {e}") from e


_OF_STRINGS = ("minLength", "maxLength", "pattern")


def free_text(lark: Lark, name: str, schema: Mapping[str, Any], end: str, *, strict: bool) -> str:
    """Return a text as long as the schema wants it, and its end.

    Args:
        lark: Takes a rule of that name.
        name: Of the rule.
        schema: Of a string.
        end: Behind the text.
        strict: To the letter; else as far as it can be enforced.

    Raises:
        RequestError: The schema is malformed.
    """
    if not strict:
        schema = loosened({k: schema[k] for k in _OF_STRINGS if k in schema})
    least, most = _length(schema, "minLength", "0"), _length(schema, "maxLength", "")
    length = f"(?s:.{{{least},{most}}})"
    if not lark.holds_special(end):
        tail = pattern(end)
        # The first end ends the text, whatever else is asked of it.
        kinds = [f"/{length}{tail}/", f"~/(?s:.*){pattern(end.lstrip(chr(10)))}(?s:.+)/"]
        if "pattern" in schema:
            kinds.append(_matching(schema["pattern"], tail))
        lark.rule(f"{name}[lazy]", " & ".join(kinds))
        return name
    # No text holds a special token: what comes before the first of them belongs to the text.
    special = lark.from_special(end)
    tail = pattern(end[: len(end) - len(special)])
    kinds = [f"/{length}{tail}/", "/(?s:.+)/"]
    if "pattern" in schema:
        kinds.append(_matching(schema["pattern"], tail))
    terminal = name.upper()
    lark.rule(terminal, " & ".join(kinds))
    may_be_empty = least == "0" and "pattern" not in schema and not tail
    return f"{terminal}{'?' if may_be_empty else ''} {lark.mark(special)}"


def _length(schema: Mapping[str, Any], keyword: str, default: str) -> str:
    value = schema.get(keyword)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(f"{keyword} is {value!r} in a tool's parameters: it is a whole number")
    return str(value)


def _matching(expression: Any, end: str) -> str:
    """Return a text in which the expression is found, and what ends it."""
    import llguidance

    if not isinstance(expression, str):
        raise RequestError(f"pattern is {expression!r} in a tool's parameters: it is a string")
    before, after = "(?s:.*)", "(?s:.*)"
    if expression.startswith("^"):
        before, expression = "", expression[1:]
    if expression.endswith("$") and not expression.endswith("\\$"):
        after, expression = "", expression[:-1]
    inner = llguidance.regex_to_lark(expression, "") if expression else ""
    return f"/{before}({inner}){after}{end}/"
