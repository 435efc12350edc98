"""The MCP server of the tests, configured; and what waits for something to happen."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("tool_server.py")
PATIENCE = 120.0  # seconds until what should happen counts as not happening


def program(*arguments: str, **fields: Any) -> dict[str, Any]:
    """The configuration of the server as a program."""
    return {"command": sys.executable, "args": [str(SERVER), *arguments], **fields}


def write_config(folder: Path, **servers: Any) -> Path:
    path = folder / "mcp_servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(") ")[2].startswith("Z"))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def http_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The server behind streamable HTTP, once it listens."""
    line = [sys.executable, str(SERVER), "--http", str(port)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or _listens(port))
        yield process
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
