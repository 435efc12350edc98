"""Strict JSON parsing: input that parsers may interpret differently is rejected."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from flask import Request, g

from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import turn_of_long_text

# Deeper than any tool schema; far below the recursion limit.
MAX_DEPTH = 100
# Strings, and lists and objects: each takes many times its bytes, and all of them are made, or seen
# by the garbage collection, while no other thread runs.
_MOST_STRINGS = 1 << 19
_MOST_CONTAINERS = 1 << 17
# More digits than any sensible number; conversion is quadratic in their count.
_MAX_DIGITS = 40
# How much of a body is logged with --log-prompts.
_LOGGED_BYTES = 8192


def read_object(request: Request, *, untyped: bool = False) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    Args:
        request: The request.
        untyped: Also from programs that don't say that it is JSON, as ``curl -d`` does; never from a
            web page, whose forms look the same.

    Raises:
        ApiError: 415 for another content type; 413 for too large a body; 400 for text that is not
            UTF-8 JSON, is not an object, repeats a key, is nested deeper than 100 levels, or contains
            a number that is not finite or a string that is not valid Unicode.
    """
    value = _read(request, untyped=untyped)
    if not isinstance(value, dict):
        raise _bad("the body is not a JSON object")
    return value


def read_list(request: Request) -> list[Any]:
    """Return the JSON list of a request's body; see :func:`read_object`."""
    value = _read(request, untyped=False)
    if not isinstance(value, list):
        raise _bad("the body is not a JSON list")
    return value


def _read(request: Request, *, untyped: bool) -> Any:
    if not (_is_json(request.mimetype) or (untyped and _is_bare(request))):
        named = f"'{request.mimetype}'" if request.mimetype else "missing"
        raise ApiError(415, f"The Content-Type is {named}; send application/json.")
    data = request.get_data(cache=False)
    g.body_text = data[:_LOGGED_BYTES].decode("utf-8", "replace")
    with turn_of_long_text(len(data)):
        return parse(data)


def _is_json(mimetype: str) -> bool:
    return mimetype == "application/json" or mimetype.endswith("+json")


def _is_bare(request: Request) -> bool:
    """Return whether a program sent it without a type; browsers name the origin of every POST."""
    by_page = any(name in request.headers for name in ("Origin", "Sec-Fetch-Site", "Referer"))
    return not by_page and request.mimetype in ("", "application/x-www-form-urlencoded")


def parse(data: bytes) -> Any:
    """Parse one JSON value; see :func:`read_object` for what is rejected."""
    _check_counts(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise _bad(f"byte {e.start} is not UTF-8") from e
    try:
        value = _DECODER.decode(text)
    except RecursionError as e:
        raise _bad(f"it is nested deeper than {MAX_DEPTH} levels") from e
    except json.JSONDecodeError as e:
        raise _bad(f"{e.msg} at line {e.lineno}, column {e.colno}") from e
    _check(value)
    return value


def _check_counts(data: bytes) -> None:
    """Count the values of some text before they are made."""
    containers = data.count(b"[") + data.count(b"{")
    if containers <= _MOST_CONTAINERS and data.count(b'"') <= 2 * _MOST_STRINGS:
        return
    # Quotes in strings are escaped; without those, every second one ends a string.
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if data.count(b'"') > 2 * _MOST_STRINGS:
        raise _bad(f"it has more than {_MOST_STRINGS} strings")
    outside = b"".join(data.split(b'"')[::2])
    if outside.count(b"[") + outside.count(b"{") > _MOST_CONTAINERS:
        raise _bad(f"it has more than {_MOST_CONTAINERS} lists and objects")


def _bad(reason: str, param: str | None = None) -> ApiError:
    return ApiError(400, f"The request body is invalid: {reason}.", param=param)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _bad(f"the key '{twice[:80]}' is repeated", twice[:80])
    return value


def _constant(name: str) -> Any:
    raise _bad(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _bad(f"the number {text[:40]} is too large")
    return value


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _bad(f"the number {text[:20]}... has {len(text)} digits")
    return int(text)


def _check(value: Any) -> None:
    """Check depth and strings without recursion."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return
        level = below
    raise _bad(f"it is nested deeper than {MAX_DEPTH} levels")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise _bad(f"a string contains an unpaired surrogate (U+{ord(text[e.start]):04X})") from e


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float, parse_int=_int
)
