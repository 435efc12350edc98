"""How an MCP server stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ServerState:
    """A server as it stands now.

    Attributes:
        name: The configuration's name for it.
        transport: How it is reached.
        status: ``starting`` until its tools are known for the first time.
        error: Why it failed; empty where it didn't.
        tools: How many of its tools can be called.
    """

    name: str
    transport: Literal["stdio", "http"]
    status: Literal["starting", "ready", "failed"]
    error: str
    tools: int
