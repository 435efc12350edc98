"""Tools of MCP servers that a configuration names: list them, call them (docs/mcp.md)."""

from __future__ import annotations

from oxibonsai.mcp.config import HttpServer, ServerConfig, StdioServer, read_config
from oxibonsai.mcp.result import CallResult
from oxibonsai.mcp.servers import McpServers
from oxibonsai.mcp.state import ServerState
from oxibonsai.mcp.tool import McpTool, model_name

__all__ = [
    "CallResult",
    "HttpServer",
    "McpServers",
    "McpTool",
    "ServerConfig",
    "ServerState",
    "StdioServer",
    "model_name",
    "read_config",
]
