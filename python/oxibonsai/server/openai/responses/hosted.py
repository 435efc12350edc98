"""The tools of MCP servers that a response offers, and that this server calls for the model."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.mcp import CallResult, McpServers, McpTool, ServerConfig, model_name
from oxibonsai.server.access import check_admin
from oxibonsai.server.errors import ApiError
from oxibonsai.server.openai.schemas.mcp import ApprovalFilter, HostedMcpTool, ToolFilter
from oxibonsai.server.openai.schemas.responses import InputTokensRequest
from oxibonsai.server.stores import Object


@dataclass(frozen=True)
class HostedTool:
    """A tool on offer.

    Attributes:
        label: The request's name of its server.
        tool: The tool.
        needs_approval: Ask the client before each call.
        definition: The tool as OpenAI's chat API takes it, named after the label.
    """

    label: str
    tool: McpTool
    needs_approval: bool
    definition: Object

    @property
    def name(self) -> str:
        """Return the model's name for it."""
        name: str = self.definition["function"]["name"]
        return name


@dataclass(frozen=True)
class ToolList:
    """Tools that a server of the request offers.

    Attributes:
        label: The request's name of the server.
        tools: Its tools, without those that the request does not allow.
        error: Why there are none; None if the server could be asked.
    """

    label: str
    tools: tuple[HostedTool, ...]
    error: str | None

    @property
    def fields(self) -> Object:
        """Return the members of an item ``mcp_list_tools``."""
        tools = [
            {
                "name": hosted.tool.tool,
                "description": hosted.tool.description,
                "input_schema": hosted.tool.schema,
                "annotations": {"read_only": hosted.tool.reads_only},
            }
            for hosted in self.tools
        ]
        return {"server_label": self.label, "tools": tools, "error": self.error}


class HostedTools:
    """All tools of MCP servers in a request.

    Args:
        servers: Those that the owner named; None: no tool is on offer.
        lists: What each server of the request has.

    Attributes:
        by_name: The tools by the model's names.
    """

    def __init__(self, servers: McpServers | None = None, lists: Sequence[ToolList] = ()) -> None:
        self._servers = servers
        self.lists = lists
        self.by_name: Mapping[str, HostedTool] = {
            tool.name: tool for one in lists for tool in one.tools
        }

    def named(self, label: str, name: str) -> HostedTool | None:
        """Return a tool by the name that its server gives it; None if it is not on offer."""
        found = (t for t in self.by_name.values() if (t.label, t.tool.tool) == (label, name))
        return next(found, None)

    def call(
        self, label: str, name: str, arguments: str
    ) -> Generator[CallResult | None, None, None]:
        """Call a tool on offer; yield None now and then, and at the end the result."""
        hosted = self.named(label, name)
        assert hosted is not None
        assert self._servers is not None
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            yield CallResult("The arguments are not a JSON object.", failed=True)
            return
        try:
            yield from self._servers.follow(hosted.tool, given)
        except RequestError as e:  # the servers have been ended
            yield CallResult(f"{e}.", failed=True)

    def approved(
        self, conversation: Sequence[Object], given: Sequence[Object], most: int | None
    ) -> list[Object]:
        """Return the approval requests that the new items approve, whose calls have to be made.

        Args:
            conversation: All items.
            given: The new ones among them.
            most: Calls that the response may make (``max_tool_calls``); None: any number.

        Raises:
            ApiError: 400 if an approval has no request, its tool is not on offer, or there are too many.
        """
        requests = approval_requests(conversation)
        made = {item.get("approval_request_id") for item in calls_made(conversation)}
        found: dict[str, Object] = {}
        for item in given:
            if item["type"] != "mcp_approval_response":
                continue
            asked = requests.get(item["approval_request_id"])
            if asked is None:
                raise _refusal(
                    f"there is no mcp_approval_request '{item['approval_request_id'][:80]}' in the "
                    "conversation"
                )
            if not item["approve"] or asked["id"] in made:
                continue
            if self.named(asked["server_label"], asked["name"]) is None:
                raise _refusal(
                    f"the approved call of '{asked['name'][:80]}' needs the tool mcp with the "
                    f"server_label '{asked['server_label'][:80]}': send it in tools again"
                )
            found[asked["id"]] = asked
        if most is not None and len(found) > most:
            raise ApiError(
                400,
                f"max_tool_calls is {most}, and {len(found)} calls are approved.",
                param="max_tool_calls",
            )
        return list(found.values())


NO_TOOLS = HostedTools()


def approval_requests(items: Sequence[Object]) -> dict[str, Object]:
    """Return the approval requests among the items, by id."""
    return {item["id"]: item for item in items if item["type"] == "mcp_approval_request"}


def read_hosted_tools(servers: McpServers | None, request: InputTokensRequest) -> HostedTools:
    """Return the tools of MCP servers that a request offers.

    Raises:
        ApiError: 403 if the caller may use none; 400 if a tool or a server is not there.
    """
    given = [(i, t) for i, t in enumerate(request.tools) if isinstance(t, HostedMcpTool)]
    if not given:
        return NO_TOOLS
    check_admin()
    if servers is None:
        raise ApiError(
            400,
            f"tools[{given[0][0]}]: there are no MCP servers: this server was started without "
            "--mcp-servers-config.",
            param="tools",
        )
    servers.wait()
    lists: dict[str, ToolList] = {}
    names = {t.name for t in request.tools if not isinstance(t, HostedMcpTool)}
    for i, tool in given:
        place = f"tools[{i}]"
        if tool.server_label in lists:
            raise _wrong(f"{place}.server_label: '{tool.server_label}' is there twice")
        lists[tool.server_label] = made = _tool_list(servers, tool, place)
        for one in made.tools:
            if one.name in names:
                raise _wrong(
                    f"{place}: '{one.name}' is the model's name for one of its tools, and of another "
                    "tool, too; leave one out (allowed_tools)"
                )
            names.add(one.name)
    return HostedTools(servers, list(lists.values()))


def _tool_list(servers: McpServers, tool: HostedMcpTool, place: str) -> ToolList:
    server = _server(servers, tool, place).name
    state = next(s for s in servers.states() if s.name == server)
    if state.status != "ready":
        why = state.error or "it is still starting"
        return ToolList(tool.server_label, (), f"The MCP server can't be asked: {why}.")
    there = servers.tools_of(server)
    allowed = tool.allowed_tools
    if isinstance(allowed, list):
        allowed = ToolFilter(tool_names=allowed)
    names = set((allowed.tool_names if allowed else None) or ()) - {one.tool for one in there}
    if names:
        raise _wrong(f"{place}.allowed_tools: the server has no tool '{min(names)[:80]}'")
    chosen = [one for one in there if allowed is None or _meets(one, allowed)]
    offered = [
        HostedTool(
            tool.server_label,
            one,
            _needs_approval(one, tool.require_approval),
            _definition(tool, one),
        )
        for one in chosen
    ]
    return ToolList(tool.server_label, tuple(offered), None)


def _server(servers: McpServers, tool: HostedMcpTool, place: str) -> ServerConfig:
    """Return the server that a tool means: the one at its address, else the one of its label."""
    found: ServerConfig | None
    if tool.server_url is None:
        found = servers.config(tool.server_label)
        field, value = "server_label", tool.server_label
    else:
        found = servers.config_at(tool.server_url)
        field, value = "server_url", tool.server_url
    if found is None:
        raise _wrong(
            f"{place}.{field}: the file of --mcp-servers-config names no server '{value[:80]}', and "
            "no other one is called"
        )
    return found


def _definition(tool: HostedMcpTool, one: McpTool) -> Object:
    texts = [t for t in (tool.server_description, one.description) if t]
    function: dict[str, Any] = {
        **one.definition["function"],
        "name": model_name(tool.server_label, one.tool),
        "description": "\n".join(texts),
    }
    return {"type": "function", "function": function}


def _needs_approval(one: McpTool, rule: str | ApprovalFilter) -> bool:
    """Return whether a call needs an approval; it does unless the request says that it does not."""
    if isinstance(rule, str):
        return rule == "always"
    if rule.always is not None and _meets(one, rule.always):
        return True
    return rule.never is None or not _meets(one, rule.never)


def _meets(one: McpTool, conditions: ToolFilter) -> bool:
    names, reads = conditions.tool_names, conditions.read_only
    return (names is None or one.tool in names) and (reads is None or one.reads_only is reads)


def calls_made(items: Sequence[Object]) -> list[Object]:
    """Return the calls of tools among the items; one that was cut off before its result is none."""
    calls = (item for item in items if item["type"] == "mcp_call")
    return [c for c in calls if c.get("output") is not None or c.get("error") is not None]


def _wrong(message: str) -> ApiError:
    return ApiError(400, f"{message}.", param="tools")


def _refusal(message: str) -> ApiError:
    return ApiError(400, f"input: {message}.", param="input")
