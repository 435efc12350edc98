"""The tools and the tool choice of a request, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oxibonsai.errors import RequestError

MAX_TOOLS = 128
MAX_NAME = 128  # characters of a name: Anthropic's bound; OpenAI's is 64

# Why hosted tools are refused, and what to do.
ONLY_FUNCTIONS = (
    "this server runs no tools itself while it answers, but for mcp in /v1/responses, which calls the "
    "servers of --mcp-servers-config; offer a function in its place, and run it in the client"
)
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")


@dataclass(frozen=True)
class Tool:
    """A function on offer.

    Attributes:
        name: 1 to 128 letters, digits, ``_`` and ``-``.
        parameters: JSON schema of the arguments; always one of type object.
        strict: Refuse a schema that can't be enforced to the letter; else what can't be is left out.
    """

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False


@dataclass(frozen=True)
class ToolChoice:
    """Whether to call: not at all, as the model likes, at least once, or one function."""

    mode: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """Return tools in the form of OpenAI's chat API.

    Raises:
        RequestError: Names the tool and the field that is wrong.
    """
    if tools is None:
        return ()
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise RequestError("tools is not a list")
    if len(tools) > MAX_TOOLS:
        raise RequestError(f"tools has {len(tools)} entries: at most {MAX_TOOLS} are taken")
    read: dict[str, Tool] = {}
    for i, tool in enumerate(tools):
        checked = _tool(tool, f"tools[{i}]")
        if checked.name in read:
            raise RequestError(f"tools[{i}].function.name: {checked.name!r} is there twice")
        read[checked.name] = checked
    return tuple(read.values())


def read_tool_choice(choice: Any, tools: Sequence[Tool]) -> ToolChoice:
    """Read ``"none"``, ``"auto"``, ``"required"``, ``{"type": "function", "function": {"name": ...}}``.

    None is auto where there are tools.

    Raises:
        RequestError: It is none of these, or asks for a tool that is not there.
    """
    if choice is None:
        return ToolChoice("auto" if tools else "none")
    if choice == "none":
        return ToolChoice("none")
    if choice in ("auto", "required"):
        if not tools and choice == "required":
            raise RequestError("tool_choice is required, but there are no tools")
        return ToolChoice(choice)
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or choice.get("type") != "function":
        raise RequestError(
            'tool_choice is none of "none", "auto", "required" and'
            ' {"type": "function", "function": {"name": ...}}'
        )
    if name not in {t.name for t in tools}:
        raise RequestError(f"tool_choice.function.name: there is no tool {name!r}")
    return ToolChoice("named", name)


def _tool(tool: Any, place: str) -> Tool:
    if not isinstance(tool, Mapping):
        raise RequestError(f"{place} is not an object")
    if tool.get("type") != "function":
        raise RequestError(f"{place}.type is {tool.get('type')!r}: {ONLY_FUNCTIONS}")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise RequestError(f"{place}.function is not an object")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{place}.function.name is {str(name)[:80]!r}:"
            f" a name has 1 to {MAX_NAME} of a-z A-Z 0-9 _ -"
        )
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise RequestError(f"{place}.function.description is not a string")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise RequestError(f"{place}.function.strict is neither true nor false")
    parameters = _parameters(function.get("parameters"), f"{place}.function.parameters")
    return Tool(name, parameters, strict is True)


def _parameters(schema: Any, place: str) -> Mapping[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(schema, Mapping):
        raise RequestError(f"{place} is not an object: it is a JSON schema")
    if schema.get("type", "object") != "object":
        raise RequestError(f'{place}.type is {schema["type"]!r}: arguments are of type "object"')
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise RequestError(f"{place}.properties is not an object")
    for name, one in properties.items():
        if not isinstance(one, (Mapping, bool)):
            raise RequestError(f"{place}.properties.{name} is not a schema")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(r, str) for r in required):
        raise RequestError(f"{place}.required is not a list of names")
    return {**schema, "type": "object"}
