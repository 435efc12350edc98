"""``/props``: properties of the server and its model."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, jsonify

from oxibonsai import __version__
from oxibonsai.server.llama_server.completion import generation_settings
from oxibonsai.server.openai.prompts import MEDIA_MARKER
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.server import Server


def props_blueprint(app: Server) -> Blueprint:
    """The route."""
    bp = Blueprint("props", __name__)

    @bp.get("/props")
    def props() -> Response:
        pool = app.generations.loaded
        engine = pool.engines[0]
        params = SamplingFields.model_validate({}).sampling_params(
            app.settings, engine.tokenizer, max_tokens=None
        )
        template = app.backend.chat_template
        checkpoint = engine.model.weights.checkpoint
        return jsonify(
            default_generation_settings={
                "params": generation_settings(params, params, app, app.settings.seed),
                "n_ctx": engine.ctx_size,
            },
            total_slots=pool.permits,
            model_alias=app.backend.models()[0].id,
            # Only the name: the path on the server is not revealed.
            model_path=Path(checkpoint.path).name,
            chat_template="" if template is None else template.source,
            modalities={"vision": engine.pictures is not None, "audio": False},
            media_marker=MEDIA_MARKER,
            build_info=f"oxibonsai {__version__}",
            is_sleeping=False,
        )

    return bp
