"""Tools of MCP servers in ``oxibonsai chat``: each call is shown, and runs once it is allowed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.errors import RequestError, printable
from oxibonsai.mcp import CallResult, McpServers, read_config
from oxibonsai.output import ToolCall

_DECLINED = CallResult("The user declined this call.", failed=True)
_STOPPED = CallResult("The user stopped before this call had a result.", failed=True)
_SHOWN = 200  # characters of a result


def mcp_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--mcp-servers-config``."""
    return click.option(
        "--mcp-servers-config",
        metavar="PATH",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A JSON file of MCP servers, as llama.cpp reads it; the model may call their tools, and "
        "each call is shown and asked about before it runs.",
    )(command)


def start_servers(config: Path) -> McpServers:
    """Start the servers that a file names; what goes wrong with them is printed to stderr.

    Raises:
        RequestError: Something in the file is wrong.
        UnsupportedError: The package ``mcp`` is not installed.
    """
    servers = McpServers(read_config(config), _tell)
    try:
        servers.wait()
    except BaseException:  # Ctrl-C, above all
        servers.close()
        raise
    for state in servers.states():
        if state.status == "ready":
            _tell(f"MCP server {printable(state.name)}: {state.tools} tools")
    return servers


def _tell(text: str) -> None:
    print(f"[{text}]", file=sys.stderr)


class ToolCalls:
    """Runs the calls of a model's answers, once the user allows them.

    Args:
        servers: They have the tools.
        read: Reads the user's answer, a line.
    """

    def __init__(self, servers: McpServers, read: Callable[[], str] = input) -> None:
        self._servers = servers
        self._read = read
        self._always: set[str] = set()  # tools that the user has allowed for this session

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """Return the tools as a request offers them."""
        return [tool.definition for tool in self._servers.tools()]

    def listed(self) -> str:
        """Return a line for each tool."""
        lines = [
            f"{tool.name}: {printable(tool.description.partition(chr(10))[0][:_SHOWN])}"
            for tool in self._servers.tools()
        ]
        return "\n".join(lines or ["[there are no tools]"])

    def run(
        self, calls: list[ToolCall], *, stopped: bool = False
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages with the results of calls, and whether the model may go on.

        Ctrl-C stops: calls without a result get one that says so.

        Args:
            calls: Of one answer.
            stopped: The user has stopped already: nothing is called.
        """
        results: list[CallResult] = []
        with suppress(KeyboardInterrupt):
            for call in () if stopped else calls:
                results.append(self._run(call))
        if len(results) < len(calls) and not stopped:
            stopped = True
            _tell("stopped")
        results += [_STOPPED] * (len(calls) - len(results))
        messages = [
            {"role": "tool", "tool_call_id": call.id, "content": result.message}
            for call, result in zip(calls, results, strict=True)
        ]
        return messages, not stopped

    def _run(self, call: ToolCall) -> CallResult:
        if call.name not in {tool.name for tool in self._servers.tools()}:
            return CallResult(f"There is no tool {call.name[:80]!r}.", failed=True)
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return CallResult("The arguments are no JSON object.", failed=True)
        if not self._allowed(call.name, arguments):
            return _DECLINED
        try:
            result = self._servers.call(call.name, arguments)
        except RequestError as e:  # the tool went away while the question stood
            return CallResult(f"{e}.", failed=True)
        shown = result.text if len(result.text) <= _SHOWN else f"{result.text[:_SHOWN]}..."
        _tell(f"{call.name} {'failed' if result.failed else 'gives'}: {printable(shown)}")
        return result

    def _allowed(self, name: str, arguments: dict[str, Any]) -> bool:
        """Show a call as it would run; ask, unless its tool is allowed for the session."""
        # All of it: nobody can allow what is not shown.
        _tell(f"{name} is to run with {printable(json.dumps(arguments, ensure_ascii=False))}")
        if name in self._always:
            return True
        while True:
            print("Run it? y: yes, n: no, a: always in this session > ", end="", file=sys.stderr)
            sys.stderr.flush()
            try:
                word = self._read().strip().lower()
            except EOFError:
                return False
            if word in ("a", "always"):
                self._always.add(name)
            if word in ("y", "yes", "a", "always"):
                return True
            if word in ("n", "no"):
                return False
