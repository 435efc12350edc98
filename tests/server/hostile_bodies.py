"""Bodies with one thing wrong: every field of a valid one, and of its model, times what clients send."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

_MARK = "@@HERE@@"

# JSON texts, since some of them are no values.
TEXTS: dict[str, str] = {
    "null": "null",
    "text": '"words"',
    "empty text": '""',
    "integer": "7",
    "float": "1.5",
    "true": "true",
    "empty list": "[]",
    "list of lists": "[[[]]]",
    "empty object": "{}",
    "object": '{"a":{"b":[null]}}',
    "-1": "-1",
    "0": "0",
    "-0.0": "-0.0",
    "2**31": "2147483648",
    "2**63": "9223372036854775808",
    "2**64": "18446744073709551616",
    "10**39": "1" + "0" * 39,
    "1e308": "1e308",
    "-1e308": "-1e308",
    "unicode": '"\\u0000\\u202e\U0001f469‍\U0001f469 é漢"',
    "long text": json.dumps("w" * 100_000),
    "long list": "[" + ",".join(["1"] * 10_000) + "]",
    "99 levels": "[" * 90 + "]" * 90,
}
# No reader may accept these.
NEVER: dict[str, str] = {
    "nan": "NaN",
    "infinity": "-Infinity",
    "1e309": "1e309",
    "half a surrogate pair": '"\\ud800"',
    "10,000 levels": "[" * 10_000 + "]" * 10_000,
    "10,000 objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "5,000 digits": "1" * 5_000,
    "half a value": '"',
}


@dataclass(frozen=True)
class HostileBody:
    """One request body.

    Attributes:
        name: Which field holds what.
        text: The JSON, or nearly JSON.
        refused: It must be, whatever the field means.
    """

    name: str
    text: str
    refused: bool


def hostile_bodies(valid: Mapping[str, Any], model: type[BaseModel]) -> Iterator[HostileBody]:
    """Every variation of a valid body.

    Args:
        valid: A body that the route accepts.
        model: What checks it; its further fields are tried too.
    """
    required = {f.alias or name for name, f in model.model_fields.items() if f.is_required()}
    for name in valid:
        rest = {k: v for k, v in valid.items() if k != name}
        yield HostileBody(f"{name} missing", json.dumps(rest), refused=name in required)
    for path in _paths(valid, model):
        marked = json.dumps(_with(valid, path, _MARK))
        where = ".".join(map(str, path))
        for what, text in TEXTS.items():
            yield HostileBody(f"{where}: {what}", marked.replace(f'"{_MARK}"', text), False)
        for what, text in NEVER.items():
            yield HostileBody(f"{where}: {what}", marked.replace(f'"{_MARK}"', text), True)
        if isinstance(path[-1], str):
            twice = f'"{path[-1]}": "{_MARK}"'
            text = marked.replace(twice, f'"{path[-1]}": 1, "{path[-1]}": 1')
            yield HostileBody(f"{where}: twice", text, True)


def _paths(valid: Mapping[str, Any], model: type[BaseModel]) -> list[tuple[str | int, ...]]:
    names = [(f.alias or name,) for name, f in model.model_fields.items()]
    inner = list(_inner_paths(valid, ()))
    return [*inner, *(n for n in names if n not in inner)]


def _inner_paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _inner_paths(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from _inner_paths(value[0], (*path, 0))


def _with(value: Mapping[str, Any], path: tuple[str | int, ...], item: Any) -> Any:
    changed: Any = copy.deepcopy(dict(value))
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = item
    return changed
