"""The connection with one MCP server: made, kept up, and made again when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
from mcp import Client, MCPError, types

from oxibonsai import __version__
from oxibonsai.errors import RequestError, printable
from oxibonsai.mcp.config import ServerConfig, StdioServer
from oxibonsai.mcp.result import CallResult, read_result, readable
from oxibonsai.mcp.state import ServerState
from oxibonsai.mcp.tool import McpTool, read_tool
from oxibonsai.mcp.transport import open_transport

_log = logging.getLogger("oxibonsai.mcp")
START_SECONDS = 30.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_MOST_PAGES, _MOST_LISTED = 20, 1024  # of a server's list of tools
_LONGEST_REASON = 300


class Connection:
    """One server; all methods but ``state`` belong to the event loop.

    Args:
        config: The server.
        notice: Called with a line about what goes wrong with it.
    """

    def __init__(self, config: ServerConfig, notice: Callable[[str], None]) -> None:
        self.config = config
        self.tools: tuple[McpTool, ...] = ()
        self.settled = anyio.Event()  # it has connected or failed once
        self._notice = notice
        self._client: Client | None = None
        self._ended = anyio.Event()
        self._error = self._told = ""
        self._last_line = ""  # that the program wrote to stderr

    def state(self) -> ServerState:
        """Return how it stands."""
        ready = self._client is not None
        return ServerState(
            self.config.name,
            transport="stdio" if isinstance(self.config, StdioServer) else "http",
            status="ready" if ready else "failed" if self._error else "starting",
            error="" if ready else self._error,
            tools=len(self.tools),
        )

    async def run(self) -> None:
        """Keep the connection up until cancelled: when it ends, make it again after a pause."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            began = anyio.current_time()
            try:
                await self._serve()
                reason = "it ended"
            except Exception as e:
                reason = _reason(e)
            self._tell(self._with_last_line(reason))
            self.settled.set()
            lived = anyio.current_time() - began
            pause = _FIRST_PAUSE_SECONDS if lived > _LONGEST_PAUSE_SECONDS else pause
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _serve(self) -> None:
        """Connect, and return when the server has ended."""
        self._ended = ended = anyio.Event()
        self._last_line = ""
        client = Client(
            open_transport(self.config, ended, self._hear),
            read_timeout_seconds=START_SECONDS,
            client_info=types.Implementation(name="oxibonsai", version=__version__),
        )
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + START_SECONDS) as scope:
                async with client:
                    self.tools = await self._list_tools(client)
                    scope.deadline = float("inf")
                    self._client, self._error, self._told = client, "", ""
                    _log.info("MCP server %s: %d tools", self._shown, len(self.tools))
                    self.settled.set()
                    await ended.wait()
                    self._client, self._error = None, self._with_last_line("it ended")
            if scope.cancelled_caught:
                raise TimeoutError(f"it listed no tools within {START_SECONDS:.0f} s")
        finally:
            self._client = None
            ended.set()

    async def _list_tools(self, client: Client) -> tuple[McpTool, ...]:
        """Return the tools that can be offered; a notice tells of each other one."""
        listed: list[types.Tool] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > _MOST_LISTED:
                break
        tools: dict[str, McpTool] = {}
        for one in listed[:_MOST_LISTED]:
            try:
                tool = read_tool(self.config.name, one)
                if tool.name in tools:
                    raise RequestError(f"another one is called {tool.name}, too")
            except RequestError as e:
                left_out = printable(one.name[:80])
                self._notice(f"MCP server {self._shown}: tool {left_out} is left out: {e}")
                continue
            tools[tool.name] = tool
        return tuple(tools.values())

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Call a tool by the server's own name for it."""
        client, ended, timeout = self._client, self._ended, self.config.timeout
        if client is None:
            why = self._error or "it is still starting"
            return CallResult(f"The MCP server {self._shown} can't be asked: {why}.", failed=True)
        answer: CallResult | None = None
        async with anyio.create_task_group() as group:

            async def give_up_at_the_end() -> None:
                await ended.wait()
                group.cancel_scope.cancel()

            group.start_soon(give_up_at_the_end)
            answer = await self._ask(client, tool, arguments, timeout)
            group.cancel_scope.cancel()
        if answer is None:
            text = f"The MCP server {self._shown} ended during the call"
            return CallResult(f"{self._with_last_line(text)}.", failed=True)
        return answer

    async def _ask(
        self, client: Client, tool: str, arguments: dict[str, Any], timeout: float
    ) -> CallResult | None:
        """Return a call's result; None where the server ended."""
        late = CallResult(f"The tool gave no result within {timeout:g} s.", failed=True)
        try:
            with anyio.fail_after(timeout):
                return read_result(
                    await client.call_tool(tool, arguments, read_timeout_seconds=timeout)
                )
        except TimeoutError:
            return late
        except MCPError as e:
            if e.code == types.REQUEST_TIMEOUT:
                return late
            if e.code == types.CONNECTION_CLOSED:
                return None
            if e.message == "Session terminated":  # of HTTP: the server knows this client no more
                self._ended.set()
            return CallResult(
                readable(f"The MCP server refused the call: {e.message}"), failed=True
            )
        except Exception as e:  # whatever else the answer of a foreign program leads to
            return CallResult(f"The answer can't be read: {_reason(e)}.", failed=True)

    @property
    def _shown(self) -> str:
        return printable(self.config.name)

    def _hear(self, line: str) -> None:
        self._last_line = printable(line[:_LONGEST_REASON])

    def _with_last_line(self, reason: str) -> str:
        return f"{reason}; its last words: {self._last_line}" if self._last_line else reason

    def _tell(self, reason: str) -> None:
        self._error = reason
        if reason != self._told:
            self._notice(f"MCP server {self._shown} failed: {reason}; it is tried again")
        self._told = reason


def _reason(error: BaseException) -> str:
    """Return what an error says, or the first one of a group, on one short line."""
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return printable(f"{where}{error.strerror}"[:_LONGEST_REASON])
    return printable((str(error).rstrip(".") or type(error).__name__)[:_LONGEST_REASON])
