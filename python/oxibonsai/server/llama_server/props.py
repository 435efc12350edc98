"""``/props``: properties of the server and its model; ``/version``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai import __version__
from oxibonsai.server.llama_server.completion import generation_settings
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.openai.prompts import MEDIA_MARKER
from oxibonsai.server.registry.entry import Status
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.server import Server


def props_blueprint(app: Server) -> Blueprint:
    """Return the two routes."""
    bp = Blueprint("props", __name__)

    @bp.get("/props")
    def props() -> Response:
        if (asleep := _not_loaded(app)) is not None:
            return jsonify(asleep)
        pool = app.submitter.loaded
        engine = pool.engines[0]
        params = SamplingFields.model_validate({}).sampling_params(
            app.submitter.settings, engine.tokenizer, max_tokens=None
        )
        template = app.submitter.chat_template
        checkpoint = engine.model.weights.checkpoint
        return jsonify(
            default_generation_settings={
                "params": {
                    **generation_settings(params, params, engine, app.submitter.settings.seed),
                    "speculative.types": _speculation(app.submitter.settings),
                },
                "n_ctx": engine.ctx_size,
            },
            total_slots=pool.permits,
            model_alias=app.submitter.model_id,
            # Only the name: the path on the server is not revealed.
            model_path=Path(checkpoint.path).name,
            chat_template="" if template is None else template.source,
            modalities={"vision": engine.pictures is not None, "audio": False},
            media_marker=MEDIA_MARKER,
            build_info=f"oxibonsai {__version__}",
            is_sleeping=False,
        )

    @bp.get("/version")
    def version() -> Response:
        return jsonify(version=__version__)

    return bp


def _speculation(settings: ModelSettings) -> str:
    """Return the name of the speculator, under llama-server's names."""
    if settings.draft_model is not None:
        return "draft-simple"
    return {"off": "none", "ngram": "ngram-simple", "mtp": "draft-mtp"}[settings.speculate]


def _not_loaded(app: Server) -> dict[str, Any] | None:
    """Return the properties of a server without a loaded model, or of a sleeping one."""
    models = app.models
    name = request.args.get("model")
    if models.several and name is None:
        return {
            "role": "router",
            "max_instances": app.settings.models_max,
            "models_autoload": app.settings.models_autoload,
            "build_info": f"b-oxibonsai-{__version__}",
        }
    entry = models.find(name)
    if entry.status != Status.SLEEPING:
        return None
    return {
        "model_alias": entry.spec.name,
        "build_info": f"oxibonsai {__version__}",
        "is_sleeping": True,
    }
