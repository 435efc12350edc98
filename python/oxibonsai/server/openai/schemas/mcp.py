"""The tool `mcp` of a response, and the items that come of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from oxibonsai.server.schemas.fields import MOST_TOOLS, Fields

_Label = Annotated[str, StringConstraints(min_length=1, max_length=64)]

# The owner's file says how a server is reached, so none of these could have an effect.
_FOR_THE_OWNER = ("headers", "authorization", "connector_id", "tunnel_id")


class ToolFilter(Fields):
    """Some tools of a server: those that meet all conditions."""

    tool_names: list[str] | None = Field(None, max_length=MOST_TOOLS)
    read_only: bool | None = None

    @model_validator(mode="after")
    def _of_something(self) -> ToolFilter:
        if self.tool_names is None and self.read_only is None:
            raise ValueError("a filter of tools needs tool_names or read_only")
        return self


class ApprovalFilter(Fields):
    """The tools whose calls need an approval, and those whose calls don't."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class HostedMcpTool(Fields):
    """The tools of an MCP server that the server's owner has named."""

    type: Literal["mcp"]
    server_label: _Label
    server_url: str | None = None
    server_description: Annotated[str, StringConstraints(max_length=4096)] | None = None
    allowed_tools: list[str] | ToolFilter | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter = "always"

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, tool: Any) -> Any:
        """Refuse what is not supported; null is the same as a missing field."""
        if not isinstance(tool, dict):
            return tool
        tool = {k: v for k, v in tool.items() if v is not None}
        for name in _FOR_THE_OWNER:
            if tool.get(name):
                raise ValueError(
                    f"{name} is not supported: the file of --mcp-servers-config says how this "
                    "server reaches an MCP server"
                )
        if tool.get("defer_loading"):
            raise ValueError("defer_loading is not supported: all tools are offered at once")
        if tool.get("allowed_callers", ["direct"]) != ["direct"]:
            raise ValueError("allowed_callers is not supported: only the model calls tools")
        return tool


class NamedMcpTool(Fields):
    """A tool of an MCP server, or any of its tools."""

    type: Literal["mcp"]
    server_label: _Label
    name: str | None = None


class McpListToolsItem(Fields):
    """The tools that a server had."""

    type: Literal["mcp_list_tools"]
    id: str | None = None
    server_label: _Label
    tools: list[dict[str, Any]] = Field(max_length=MOST_TOOLS)
    error: str | None = None


class McpCallItem(Fields):
    """A call of a server's tool, with its result."""

    type: Literal["mcp_call"]
    id: str | None = None
    server_label: _Label
    name: str
    arguments: str
    approval_request_id: str | None = None
    output: str | None = None
    error: str | dict[str, Any] | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] | None = None


class McpApprovalRequestItem(Fields):
    """A call that needs an approval."""

    type: Literal["mcp_approval_request"]
    id: str | None = None
    server_label: _Label
    name: str
    arguments: str


class McpApprovalResponseItem(Fields):
    """Whether a call may be made."""

    type: Literal["mcp_approval_response"]
    id: str | None = None
    approval_request_id: str
    approve: bool
    reason: str | None = None
