"""An MCP server for tests, made with the package mcp: ``tool_server.py [--http PORT] [--mark FILE]``.

With ``--mark`` it writes its process id to the file when it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("tests")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(title="Put a note down")
def note(text: str) -> str:
    """Write a note to the file that NOTES names."""
    with open(os.environ["NOTES"], "a", encoding="utf-8") as file:
        file.write(text + "\n")
    return "noted"


@server.tool()
def visit(city: Literal["Rome", "Oslo"]) -> str:
    """Write a city to the file that NOTES names; any model can say its arguments."""
    return f"{note(city)}: {city}"


@server.tool()
def environment() -> str:
    """Return the variables of this process."""
    return json.dumps(dict(os.environ))


@server.tool()
def broken() -> str:
    """Fail."""
    raise ValueError("the disk is on fire")


@server.tool()
def slow(file: str) -> str:
    """Write to a file, then never answer."""
    Path(file).write_text("called")
    time.sleep(3600)
    return "late"


@server.tool()
def die() -> str:
    """End this process."""
    print("I have had enough\x1b[31m", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def huge() -> str:
    """Return megabytes."""
    return "x" * 5_000_000


@server.tool()
def controls() -> str:
    """Return what would command a terminal."""
    return "a\x1b[2Jb\x07c\u009bd\te\r\nf"


@server.tool()
def picture() -> CallToolResult:
    """Return an image beside text."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="see"),
            ImageContent(type="image", data="AAAA", mime_type="image/png"),
        ]
    )


@server.tool(name="odd.name/here")
def odd() -> str:
    """Have a name that no model can write."""
    return "odd"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--mark")
    parser.add_argument("--stubborn", action="store_true", help="Ignore the end of stdin.")
    given: Any = parser.parse_args()
    if given.mark:
        Path(given.mark).write_text(str(os.getpid()))
    if given.http:
        server.run(transport="streamable-http", port=given.http)
        return
    server.run()
    if given.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)


if __name__ == "__main__":
    main()
