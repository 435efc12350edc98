"""The JSON types that a schema leaves to a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_STEPS = 64  # through references and alternatives

STRING = frozenset({"string"})

_BRANCHES = ("allOf", "anyOf", "oneOf")
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_NAMES |= {list: "array", dict: "object"}


def parameter_types(parameters: Mapping[str, Any], name: str) -> frozenset[str] | None:
    """Types of a parameter, or None for any.

    Args:
        parameters: Schema of a function's arguments.
        name: Of the parameter. One that the schema does not know is a string.
    """
    properties = listed_properties(parameters)
    if name not in properties:
        return STRING
    return _types(properties[name], parameters, [_MAX_STEPS])


def listed_properties(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters and their schemas, those that only alternatives list behind the others.

    One that two alternatives list differently may be anything.
    """
    root = resolve(parameters, parameters)
    if not isinstance(root, Mapping):
        return {}
    listed: Mapping[str, Any] = root.get("properties", {})
    branches = [b for k in _BRANCHES if isinstance(root.get(k), list) for b in root[k]]
    if not branches:
        return listed
    others: dict[str, Any] = {}
    for branch in branches:
        branch = resolve(branch, parameters)
        inner = branch.get("properties") if isinstance(branch, Mapping) else None
        for name, schema in inner.items() if isinstance(inner, Mapping) else ():
            others[name] = schema if others.get(name, schema) == schema else True
    return {**listed, **{k: v for k, v in others.items() if k not in listed}}


def resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema behind a chain of local references; None where there is nothing."""
    for _ in range(_MAX_STEPS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = _lookup(schema["$ref"], root)
    return None


def _lookup(pointer: str, root: Mapping[str, Any]) -> Any:
    head, *parts = pointer.split("/")
    if head != "#":
        return None
    place: Any = root
    for part in parts:
        key = part.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _types(schema: Any, root: Mapping[str, Any], steps: list[int]) -> frozenset[str] | None:
    steps[0] -= 1
    schema = resolve(schema, root)
    if steps[0] < 0 or not isinstance(schema, Mapping):
        return None
    named = schema.get("type")
    if isinstance(named, (str, list)):
        names = [named] if isinstance(named, str) else list(named)
        return frozenset(n for n in names if isinstance(n, str))
    if isinstance(schema.get("enum"), list):
        return frozenset(_NAMES.get(type(v), "string") for v in schema["enum"])
    if "const" in schema:
        return frozenset({_NAMES.get(type(schema["const"]), "string")})
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            parts = [_types(s, root, steps) for s in schema[keyword]]
            known = [p for p in parts if p is not None]
            return frozenset().union(*known) if len(known) == len(parts) else None
    return None
