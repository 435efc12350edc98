"""The parameters of a function one by one, for formats that do not write arguments as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.lark import Lark, literal
from oxibonsai.output.tools.request import Tool
from oxibonsai.output.tools.schema_types import listed_properties, resolve

# Keywords that a list of named values, one after the other, can hold to.
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$ref"}
    | {"$schema", "$id", "$comment", "title", "description", "examples", "default", "strict"}
)


def parameters_of(tool: Tool, *, forbidden: str) -> list[tuple[str, Any, bool]]:
    """Names, schemas and whether they are required, in the order of the schema.

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
    """Items in their order with a separator between them; those that are not required may be left out.

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
