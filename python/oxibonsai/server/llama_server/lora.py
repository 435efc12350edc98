"""``/lora-adapters``: the adapters of the model, in llama-server's format."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.access import for_admins
from oxibonsai.server.schemas.fields import LoraScale
from oxibonsai.server.server import Server
from oxibonsai.server.strict_json import read_list
from oxibonsai.server.validation import as_body


def lora_blueprint(app: Server) -> Blueprint:
    """Return the two routes."""
    bp = Blueprint("lora", __name__)

    @bp.get("/lora-adapters")
    def list_adapters() -> Response:
        # Only the names: paths on the server are not revealed.
        return jsonify(
            [
                {
                    "id": a.id,
                    "name": a.name,
                    "path": Path(a.adapter.name).name,
                    "scale": a.default,
                }
                for a in app.submitter.adapters.listed()
            ]
        )

    @bp.post("/lora-adapters")
    @for_admins
    def set_scales() -> Response:
        scales = [as_body(LoraScale, item) for item in read_list(request)]
        app.submitter.adapters.set_defaults({one.id: one.scale for one in scales})
        return jsonify(success=True)

    return bp
