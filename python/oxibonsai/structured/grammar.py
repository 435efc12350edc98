"""Structures as llguidance grammars."""

from __future__ import annotations

import json
import re
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.structured.json_schema import prepared
from oxibonsai.structured.patterns import literal
from oxibonsai.structured.structure import Structure

# The model picks its own tokens for a text that is the only one possible.
# Last, so that the lines of a grammar keep their numbers in messages.
OPTIONS = '\n%llguidance {"no_forcing": true}\n'

# JSON on one line: nothing but one space after a comma and a colon. With free white space a small
# model can go on with new lines for ever. "lenient" would let keywords pass unread.
JSON_OPTIONS = {
    "item_separator": ", ?",
    "key_separator": ": ?",
    "whitespace_flexible": False,
    # Without \\uXXXX a text has one spelling only: a key can't come again in disguise.
    "json_allowed_escapes": 'nrbtf\\"',
    "coerce_one_of": False,
    "lenient": False,
}

# What a Lark grammar is made of, as far as finding `%json` outside of texts and comments goes.
_LARK_PIECE = re.compile(
    r'"(?:\\.|[^"\\])*"|//[^\n]*|#[^\n]*|/(?![/*])(?:\\.|[^/\\])+/|%json\b',
    re.DOTALL,
)

_GBNF_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def to_lark(structure: Structure) -> str:
    """Return the structure as one Lark grammar; GBNF stays as it is, for the trial to convert.

    Raises:
        RequestError: A schema that is not valid or not enforceable; names keyword and place.
    """
    kind, text = structure.kind, structure.text
    if kind == "json_schema":
        return f"start: %json {_schema(json.loads(text))}"
    if kind == "regex":
        return _regex(text)
    if kind == "choice":
        return _choice(json.loads(text))
    if kind == "lark":
        return _with_own_schemas(text)
    return _with_short_codes(text)


def _schema(schema: Any) -> str:
    """Return a schema, checked, with our way to write JSON."""
    schema = prepared(schema)
    # A boolean has no room for options.
    fields = {"allOf": [schema]} if isinstance(schema, bool) else schema
    return json.dumps({**fields, "x-guidance": JSON_OPTIONS}, ensure_ascii=False)


def _regex(pattern: str) -> str:
    import llguidance

    if not pattern:
        return 'start: ""'
    return f"start: /{llguidance.regex_to_lark(pattern, '')}/"


def _choice(options: list[str]) -> str:
    """Return one expression of all texts: llguidance shares their beginnings."""
    return f"start: /{'|'.join(map(literal, options))}/" if any(options) else _regex("")


def _with_own_schemas(grammar: str) -> str:
    """Return a Lark grammar with the schemas inside of it checked and written our way."""
    parts: list[str] = []
    done = 0
    decoder = json.JSONDecoder()
    while (piece := _LARK_PIECE.search(grammar, done)) is not None:
        parts.append(grammar[done : piece.end()])
        done = piece.end()
        if piece[0] == "%json":
            start = len(grammar) - len(grammar[done:].lstrip())
            try:
                schema, done = decoder.raw_decode(grammar, start)
            except (ValueError, RecursionError) as e:
                line = grammar.count("\n", 0, start) + 1
                raise RequestError(f"lark: no JSON schema after %json in line {line}: {e}") from e
            parts.append(f" {_schema(schema)}")
    return "".join(parts) + grammar[done:]


def _with_short_codes(grammar: str) -> str:
    r"""Return a GBNF grammar without ``\uXXXX``, of which llguidance's conversion loses zeros."""

    def short(found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        if digits is None:
            return found[0]
        code = int(digits, 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise RequestError(f"gbnf: {found[0]} is no character")
        return f"\\x{code:02x}" if code < 0x80 else chr(code)

    return _GBNF_ESCAPE.sub(short, grammar)
