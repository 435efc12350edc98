"""``/models/load`` and ``/models/unload``: the routes of llama-server's router."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.llama_server.schemas import ModelName
from oxibonsai.server.server import Server
from oxibonsai.server.validation import read_body


def router_blueprint(app: Server) -> Blueprint:
    """The two routes; both return at once, ``/models`` has the state."""
    bp = Blueprint("router", __name__)

    @bp.post("/models/load")
    def load() -> Response:
        app.models.start_loading(read_body(ModelName, request).model)
        return jsonify(success=True)

    @bp.post("/models/unload")
    def unload() -> Response:
        app.models.unload(read_body(ModelName, request).model)
        return jsonify(success=True)

    return bp
