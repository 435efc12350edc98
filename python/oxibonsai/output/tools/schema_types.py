"""The JSON types that a schema leaves to a value, and a function's parameters one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.lark import Lark, literal
from oxibonsai.output.tools.request import Tool

_MAX_STEPS = 64  # through references and alternatives

STRING = frozenset({"string"})

_BRANCHES = ("allOf", "anyOf", "oneOf")
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_NAMES |= {list: "array", dict: "object"}


def parameter_types(parameters: Mapping[str, Any], name: str) -> frozenset[str] | None:
    """Return the types of a parameter, or None for any.

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


# Keywords that a list of named values, one after the other, can hold to.
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$ref"}
    | {"$schema", "$id", "$comment", "title", "description", "examples", "default", "strict"}
)


def parameters_of(tool: Tool, *, forbidden: str) -> list[tuple[str, Any, bool]]:
    """Return names, schemas and whether they are required, in the order of the schema.

    Args:
        tool: The function.
        forbidden: Characters that the format can't have in a name.

    Raises:
        RequestError: The schema asks for what this form of a call can't be held to.
    """
    place = f"parameters of the tool {tool.name}"
    root = resolve(tool.parameters, tool.parameters)
    if not isinstance(root, Mapping):
        raise RequestError(f"{place}: $ref leads nowhere")
    unknown = sorted(set(root) - _KNOWN)
    if unknown and tool.strict:
        raise RequestError(f"{place}: this model's calls can't be held to {unknown[0]!r}")
    properties, required = listed_properties(tool.parameters), root.get("required", [])
    names = list(dict.fromkeys([*properties, *required]))
    for name in names:
        if not name or any(c in forbidden for c in name):
            raise RequestError(f"{place}: this model's calls can't have a parameter {name!r}")
    return [(name, properties.get(name, True), name in required) for name in names]


def own_schema(tool: Tool, schema: Any) -> dict[str, Any]:
    """Return the schema of a parameter, with what it may refer to."""
    own = schema if isinstance(schema, Mapping) else {} if schema is True else {"not": {}}
    shared = {k: tool.parameters[k] for k in ("$defs", "definitions") if k in tool.parameters}
    return {**own, **shared}


def separated(lark: Lark, rule: str, items: Sequence[tuple[str, bool]], separator: str) -> str:
    """Return a rule of items in their order, with a separator; those not required may be left out.

    Args:
        lark: Takes the rules.
        rule: Beginning of their names.
        items: What each matches, and whether it is required.
        separator: Between two.
    """
    if not items:
        return ""
    tail = ""
    ways: list[str] = []
    for i in range(len(items) - 1, -1, -1):
        text, required = items[i]
        lark.rule(f"{rule}_i{i}", text)
        ways = [f"{rule}_i{i} {tail}"] + ([] if required else ways)
        more = f"({literal(separator)} {rule}_i{i})" + ("" if required else "?")
        lark.rule(f"{rule}_t{i}", f"{more} {tail}")
        tail = f"{rule}_t{i}"
    optional = "" if any(required for _, required in items) else "?"
    return f"({' | '.join(ways)}){optional}"
