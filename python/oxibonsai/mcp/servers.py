"""All MCP servers of a configuration, for code without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from oxibonsai.errors import RequestError, needs_extra
from oxibonsai.mcp.config import HttpServer
from oxibonsai.mcp.result import CallResult
from oxibonsai.mcp.tool import McpTool
from oxibonsai.output.tools.request import MAX_TOOLS

if TYPE_CHECKING:
    from oxibonsai.mcp.config import ServerConfig
    from oxibonsai.mcp.connection import Connection
    from oxibonsai.mcp.state import ServerState

_log = logging.getLogger("oxibonsai.mcp")
_Result = TypeVar("_Result")
_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 15.0  # mcp gives a program some seconds, then kills it


class McpServers:
    """Servers, started in a thread of their own; a program ends with :meth:`close`.

    Args:
        configs: The servers; their names differ.
        notice: Called with a line about what goes wrong with one, in that thread; None: it is logged.

    Raises:
        UnsupportedError: The package ``mcp`` is not installed.
    """

    def __init__(
        self, configs: Sequence[ServerConfig], notice: Callable[[str], None] | None = None
    ) -> None:
        with needs_extra("mcp"):
            import mcp  # noqa: F401
        from oxibonsai.mcp.connection import START_SECONDS, Connection

        # What it says of each request is no news; what matters comes as notices.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        self._start_seconds = START_SECONDS
        self._notice = notice or _log.warning
        self._told: set[str] = set()
        self._connections: dict[str, Connection] = {}
        self._configs, self._make = configs, Connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self._thread.start()
        self._begun.wait()

    def __enter__(self) -> McpServers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._connections = {c.name: self._make(c, self._notice) for c in self._configs}
        tasks = [asyncio.create_task(c.run()) for c in self._connections.values()]
        self._begun.set()
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """End all servers that were started, and wait for them."""
        if self._loop is None or self._stop is None or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_SECONDS)

    def wait(self) -> None:
        """Wait until each server has connected or failed once."""

        async def settled() -> None:
            for connection in self._connections.values():
                await connection.settled.wait()

        self._submit(settled()).result(self._start_seconds + _CLOSE_SECONDS)

    def states(self) -> list[ServerState]:
        """Return how the servers stand now."""
        return [connection.state() for connection in self._connections.values()]

    def tools(self) -> list[McpTool]:
        """Return the tools of all servers that a model can be offered together.

        Those whose name another one has are left out, and those beyond the most that a request may
        offer; a notice says so once.
        """
        found: dict[str, McpTool] = {}
        for connection in self._connections.values():
            for tool in connection.tools:
                first = found.setdefault(tool.name, tool)
                if first is not tool:
                    self._tell(
                        f"MCP: the tool {tool.tool!r} of {tool.server} is left out: {tool.name} is "
                        f"{first.tool!r} of {first.server}"
                    )
        tools = list(found.values())
        if len(tools) > MAX_TOOLS:
            self._tell(f"MCP: of {len(tools)} tools, {MAX_TOOLS} are offered; name fewer servers")
        return tools[:MAX_TOOLS]

    def _tell(self, notice: str) -> None:
        """Give a notice that was not given before."""
        if notice not in self._told:
            self._told.add(notice)
            self._notice(notice)

    def tools_of(self, server: str) -> list[McpTool]:
        """Return all tools of a server."""
        return list(self._connections[server].tools)

    def config(self, name: str) -> ServerConfig | None:
        """Return the configuration of a server by its name."""
        return next((c for c in self._configs if c.name == name), None)

    def config_at(self, url: str) -> HttpServer | None:
        """Return the configuration of the server at an address, letter by letter."""
        found = (c for c in self._configs if isinstance(c, HttpServer) and c.url == url)
        return next(found, None)

    def call(
        self, name: str, arguments: dict[str, Any], look: Callable[[], None] = lambda: None
    ) -> CallResult:
        """Call a tool and wait for its result; what goes wrong on the way is a result, too.

        Args:
            name: As :meth:`tools` has it.
            arguments: What it is called with.
            look: Called now and then; what it raises ends the call.

        Raises:
            RequestError: There is no such tool.
        """
        tool = next((t for t in self.tools() if t.name == name), None)
        if tool is None:
            raise RequestError(f"there is no tool {name[:80]!r} of an MCP server", param="tool")
        with contextlib.closing(self.follow(tool, arguments)) as call:
            for result in call:
                if result is not None:
                    return result
                look()
        raise AssertionError("a call ends with a result")

    def follow(
        self, tool: McpTool, arguments: dict[str, Any]
    ) -> Generator[CallResult | None, None, None]:
        """Call a tool; yield None now and then, and at the end the result.

        The call is cancelled if the generator is closed before its end.
        """
        work = self._connections[tool.server].call(tool.tool, arguments)
        future: concurrent.futures.Future[CallResult] = self._submit(work)
        try:
            while True:
                try:
                    yield future.result(_POLL_SECONDS)
                    return
                except concurrent.futures.TimeoutError:
                    if future.done():
                        raise
                except concurrent.futures.CancelledError:
                    yield CallResult("The call was ended with the MCP servers.", failed=True)
                    return
                yield None
        finally:
            future.cancel()

    def _submit(self, work: Coroutine[Any, Any, _Result]) -> concurrent.futures.Future[_Result]:
        if self._loop is None or not self._thread.is_alive():
            work.close()
            raise RequestError("the MCP servers have been ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop)
