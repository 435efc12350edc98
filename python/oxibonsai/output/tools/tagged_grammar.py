"""The grammar of a call whose arguments are plain text between tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oxibonsai.output.tools.call_tags import CallTags
from oxibonsai.output.tools.free_text import free_text
from oxibonsai.output.tools.lark import Lark, json_value
from oxibonsai.output.tools.parameters import own_schema, parameters_of
from oxibonsai.output.tools.request import Tool
from oxibonsai.output.tools.schema_types import STRING, parameter_types, resolve

# Keywords that leave every value possible.
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})


def function_body(lark: Lark, tags: CallTags, rule: str, tool: Tool) -> str:
    """Return the function's name, the parameters in the order of the schema, the function's end.

    Args:
        lark: Takes the rules of the values.
        tags: Around names and values.
        rule: Beginning of their names.
        tool: The function.

    Raises:
        RequestError: The schema asks for what this form of a call can't be held to.
    """
    parts = [lark.mark(f"{tags.function}{tool.name}{tags.named}")]
    for i, (name, schema, required) in enumerate(parameters_of(tool, forbidden='<>\n"')):
        value = _Value(lark, tags, tool, name, schema)
        line = "\n" if tags.lines else ""
        head = lark.mark(f"{tags.parameter}{name}{tags.valued}{value.type}{line}")
        lark.rule(f"{rule}_p{i}", f'{head} {value.rule(f"{rule}_{i}")} "\\n"')
        parts.append(f"{rule}_p{i}" + ("" if required else "?"))
    return " ".join([*parts, lark.mark(tags.function_end)])


class _Value:
    """A value and its end tag.

    Args:
        lark: Takes its rules.
        tags: Around it.
        tool: Whose it is.
        name: Of the parameter.
        schema: Of the value.

    Attributes:
        type: What the tag says of it.
    """

    def __init__(self, lark: Lark, tags: CallTags, tool: Tool, name: str, schema: Any) -> None:
        self._lark = lark
        self._tool = tool
        self._end = ("\n" if tags.lines else "") + tags.value_end
        root = tool.parameters
        schema = {} if schema is True else resolve(schema, root)
        if schema is None and not tool.strict:
            schema = {}  # of a reference to elsewhere nothing is known
        self._schema = schema
        free = isinstance(schema, Mapping) and set(schema) <= _ANNOTATIONS
        types = STRING if free else parameter_types(root, name)
        self._is_text = types is not None and "string" in types and isinstance(schema, Mapping)
        self._is_text &= types == STRING or not tags.typed
        self._only_text = types == STRING
        self.type = f'"{str(self._is_text).lower()}">' if tags.typed else ""

    def rule(self, name: str) -> str:
        """Return the rule that matches the value; add a rule of that name where one is needed."""
        schema = self._schema
        if self._is_text:
            texts = schema.get("enum", [schema["const"]] if "const" in schema else None)
            if isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts):
                return "(" + " | ".join(self._lark.mark(t + self._end) for t in texts) + ")"
            if self._only_text or not set(schema) & {"enum", "const", "anyOf", "oneOf"}:
                return free_text(self._lark, name, schema, self._end, strict=self._tool.strict)
        value = json_value(own_schema(self._tool, schema), strict=self._tool.strict)
        return f"{value} {self._lark.mark(self._end)}"
