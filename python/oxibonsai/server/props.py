"""``/props`` and ``/slots``: what the server is set up for, and what it does just now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify

from oxibonsai import __version__
from oxibonsai.server.app import Server
from oxibonsai.server.errors import ApiError
from oxibonsai.server.native_completion import generation_settings
from oxibonsai.server.sampling_fields import SamplingFields


def props_blueprint(app: Server) -> Blueprint:
    """Both routes."""
    bp = Blueprint("props", __name__)

    @bp.get("/props")
    def props() -> Response:
        generations = app.generations
        engine = generations.engine
        params = SamplingFields.model_validate({}).sampling_params(
            app.settings, engine.tokenizer, max_tokens=None
        )
        template = engine.chat_template
        checkpoint = engine.model.weights.checkpoint
        return jsonify(
            default_generation_settings={
                "params": generation_settings(params, params, app, app.settings.seed),
                "n_ctx": engine.ctx_size,
            },
            total_slots=generations.pool.permits,
            model_alias=app.backend.models()[0].id,
            # A client needs its name; the folder is nobody's business.
            model_path=Path(checkpoint.path).name,
            chat_template="" if template is None else template.source,
            modalities={"vision": False, "audio": False},
            build_info=f"oxibonsai {__version__}",
            is_sleeping=False,
        )

    @bp.get("/slots")
    def slots() -> Response:
        if not app.settings.slots:
            raise ApiError(501, "This server does not tell its slots: start it with --slots.")
        pool = app.generations.pool
        busy = pool.running
        return jsonify([_slot(i, i < busy, app) for i in range(pool.permits)])

    return bp


def _slot(number: int, is_busy: bool, app: Server) -> dict[str, Any]:
    """A permit of the pool; whose request it is is nobody else's business."""
    return {
        "id": number,
        "n_ctx": app.generations.engine.ctx_size,
        "speculative": False,
        "is_processing": is_busy,
    }
