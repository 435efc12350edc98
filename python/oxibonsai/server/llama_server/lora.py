"""``/lora-adapters``: the adapters of the model, in llama-server's format."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, jsonify

from oxibonsai.errors import RequestError
from oxibonsai.server.server import Server

FIXED_SCALES = (
    "Adapter scales are fixed when the server starts: set them with --lora-scaled FILE:SCALE."
)


def lora_blueprint(app: Server) -> Blueprint:
    """The two routes."""
    bp = Blueprint("lora", __name__)

    @bp.get("/lora-adapters")
    def list_adapters() -> Response:
        adapters = app.generations.loaded.engines[0].model.adapters
        # Only the names: paths on the server are not revealed.
        return jsonify(
            [{"id": i, "path": Path(a.name).name, "scale": a.scale} for i, a in enumerate(adapters)]
        )

    @bp.post("/lora-adapters")
    def set_scales() -> Response:
        raise RequestError(FIXED_SCALES)

    return bp
