"""The grammar of a call whose arguments are plain text between tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools.lark import Lark, json_value, literal, pattern
from oxibonsai.output.tools.request import Tool
from oxibonsai.output.tools.schema_types import STRING, listed_properties, parameter_types, resolve
from oxibonsai.structured.loosened import loosened

_TAG = "</parameter>"
_END = "\n" + _TAG
# Keywords that leave every value possible.
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})
_OF_STRINGS = ("minLength", "maxLength", "pattern")
# Keywords that a list of tagged values, one after the other, can hold to.
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$ref"}
    | {"$schema", "$id", "$comment", "title", "description", "examples", "default", "strict"}
)


def function_body(lark: Lark, rule: str, tool: Tool) -> str:
    """``<function=NAME>``, the parameters in the order of the schema, ``</function>``.

    Args:
        lark: Takes the rules of the values.
        rule: Beginning of their names.
        tool: The function.

    Raises:
        RequestError: The schema asks for what this form of a call can't be held to.
    """
    root = resolve(tool.parameters, tool.parameters)
    if not isinstance(root, Mapping):
        raise RequestError(f"parameters of the tool {tool.name}: $ref leads nowhere")
    unknown = sorted(set(root) - _KNOWN)
    if unknown and tool.strict:
        raise RequestError(
            f"parameters of the tool {tool.name}: this model's calls can't be held to {unknown[0]!r}"
        )
    properties, required = listed_properties(tool.parameters), root.get("required", [])
    parts = [literal(f"<function={tool.name}>\n")]
    for i, name in enumerate(dict.fromkeys([*properties, *required])):
        if not name or any(c in name for c in "<>\n"):
            raise RequestError(
                f"parameters of the tool {tool.name}: {name!r} can't be a tag's name"
            )
        value = _value(lark, f"{rule}_{i}", tool, name, properties.get(name, True))
        lark.rule(f"{rule}_p{i}", f'{literal(f"<parameter={name}>{chr(10)}")} {value} "\\n"')
        parts.append(f"{rule}_p{i}" + ("" if name in required else "?"))
    return " ".join([*parts, '"</function>"'])


def _value(lark: Lark, rule: str, tool: Tool, name: str, schema: Any) -> str:
    """A value and its end tag."""
    root = tool.parameters
    schema = {} if schema is True else resolve(schema, root)
    if schema is None and not tool.strict:
        schema = {}  # of a reference to elsewhere nothing is known
    free = isinstance(schema, Mapping) and set(schema) <= _ANNOTATIONS
    types = STRING if free else parameter_types(root, name)
    if types is not None and "string" in types and isinstance(schema, Mapping):
        texts = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts):
            return "(" + " | ".join(literal(t + _END) for t in texts) + ")"
        if types == STRING or not set(schema) & {"enum", "const", "anyOf", "oneOf"}:
            lark.rule(f"{rule}[lazy]", _string(schema, strict=tool.strict))
            return rule
    own = schema if isinstance(schema, Mapping) else {"allOf": [schema]}
    shared = {k: root[k] for k in ("$defs", "definitions") if k in root}
    return f"{json_value({**own, **shared}, strict=tool.strict)} {literal(_END)}"


def _string(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Any text up to the end tag, as long as the schema wants it."""
    if not strict:
        schema = loosened({k: schema[k] for k in _OF_STRINGS if k in schema})
    least, most = _length(schema, "minLength", "0"), _length(schema, "maxLength", "")
    # The first end tag ends the value, whatever else is asked of it.
    kinds = [f"/(?s:.{{{least},{most}}}){pattern(_END)}/", f"~/(?s:.*){pattern(_TAG)}(?s:.+)/"]
    if "pattern" in schema:
        kinds.append(_matching(schema["pattern"]))
    return " & ".join(kinds)


def _length(schema: Mapping[str, Any], keyword: str, default: str) -> str:
    value = schema.get(keyword)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(f"{keyword} is {value!r} in a tool's parameters: it is a whole number")
    return str(value)


def _matching(expression: Any) -> str:
    """A text in which the expression is found, and the end tag."""
    import llguidance

    if not isinstance(expression, str):
        raise RequestError(f"pattern is {expression!r} in a tool's parameters: it is a string")
    before, after = "(?s:.*)", "(?s:.*)"
    if expression.startswith("^"):
        before, expression = "", expression[1:]
    if expression.endswith("$") and not expression.endswith("\\$"):
        after, expression = "", expression[:-1]
    inner = llguidance.regex_to_lark(expression, "") if expression else ""
    return f"/{before}({inner}){after}{pattern(_END)}/"
