"""``/tools``, as llama-server has it: the tools of MCP servers, and calls of them.

Whoever calls decides what is called: nothing here asks. For a model, only ``/v1/responses`` calls tools.
"""

from __future__ import annotations

from dataclasses import asdict

from flask import Blueprint, Response, jsonify, request

from oxibonsai.errors import RequestError
from oxibonsai.server.access import for_admins
from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import InputWatch, input_is_read
from oxibonsai.server.llama_server.schemas import ToolCallBody
from oxibonsai.server.server import Server
from oxibonsai.server.validation import read_body


def tools_blueprint(app: Server) -> Blueprint:
    """Return the three routes; with admin keys, each needs one of them."""
    bp = Blueprint("tools", __name__)

    @bp.get("/tools")
    @for_admins
    def list_tools() -> Response:
        if app.mcp is None:
            return jsonify([])
        app.mcp.wait()
        return jsonify(
            [
                {
                    "tool": tool.name,
                    "display_name": tool.title,
                    "type": "mcp",
                    "permissions": {"write": not tool.reads_only},
                    "definition": tool.definition,
                    # No field of llama-server's: whose it is.
                    "server": tool.server,
                }
                for tool in app.mcp.tools()
            ]
        )

    @bp.post("/tools")
    @for_admins
    def call_tool() -> Response:
        body = read_body(ToolCallBody, request)
        if app.mcp is None:
            raise ApiError(
                404, "There are no tools: the server was started without --mcp-servers-config.",
                code="tool_not_found",
            )  # fmt: skip
        input_is_read()  # the call may take long, and others' large requests go on
        app.mcp.wait()
        try:
            result = app.mcp.call(body.tool, body.params, InputWatch().look)
        except RequestError as e:
            raise ApiError(404, f"tool: {e}.", param="tool", code="tool_not_found") from e
        return jsonify({"error" if result.failed else "plain_text_response": result.text})

    @bp.get("/v1/mcp/servers")
    @for_admins
    def list_servers() -> Response:
        states = [] if app.mcp is None else app.mcp.states()
        return jsonify(object="list", data=[{"object": "mcp.server", **asdict(s)} for s in states])

    return bp
