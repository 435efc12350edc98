"""A tool of an MCP server, in the form that a model is offered."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oxibonsai.errors import RequestError
from oxibonsai.output.tools import read_tools

if TYPE_CHECKING:
    from mcp import types

# What a server says of itself goes into every prompt: it has bounds.
_MOST_DESCRIPTION = 8192
_MOST_SCHEMA = 65536
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class McpTool:
    """A tool.

    Attributes:
        name: The model's name for it: server and tool, joined by ``_``, other characters replaced.
        server: The server's name.
        tool: The server's name for it.
        title: What people call it.
        description: What it does, as the server says.
        schema: JSON schema of its arguments.
        reads_only: Whether the server says that it changes nothing, which nobody can check.
    """

    name: str
    server: str
    tool: str
    title: str
    description: str
    schema: dict[str, Any]
    reads_only: bool

    @property
    def definition(self) -> dict[str, Any]:
        """Return the tool as OpenAI's chat API takes it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


def model_name(server: str, tool: str) -> str:
    """Return the model's name for a tool: server and tool, with `_` for what no name may have."""
    return _FOREIGN.sub("_", f"{server}_{tool}")


def read_tool(server: str, listed: types.Tool) -> McpTool:
    """Return a tool that a server lists.

    Raises:
        RequestError: A model can't be offered it.
    """
    description = listed.description or ""
    hints = listed.annotations
    tool = McpTool(
        name=model_name(server, listed.name),
        server=server,
        tool=listed.name,
        title=(listed.title or listed.name)[:200],
        description=description[:_MOST_DESCRIPTION],
        schema=listed.input_schema,
        reads_only=bool(hints is not None and hints.read_only_hint),
    )
    if len(json.dumps(tool.schema)) > _MOST_SCHEMA:
        raise RequestError(f"the schema of its arguments is larger than {_MOST_SCHEMA // 1024} KiB")
    read_tools([tool.definition])
    return tool
