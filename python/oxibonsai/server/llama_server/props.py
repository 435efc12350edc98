"""``/props``, ``/version`` and ``/lora-adapters``: the server, its model and the model's adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai import __version__
from oxibonsai.server.access import for_admins
from oxibonsai.server.llama_server.completion import generation_settings
from oxibonsai.server.openai.prompts import MEDIA_MARKER
from oxibonsai.server.registry.entry import Status
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.schemas.fields import LoraScale
from oxibonsai.server.server import Server
from oxibonsai.server.strict_json import read_list
from oxibonsai.server.validation import as_body


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
            app.submitter.settings, engine, max_tokens=None
        )
        template = app.submitter.chat_template
        checkpoint = engine.model.weights.checkpoint
        speculation = app.submitter.speculation
        kinds = () if speculation is None else speculation.kinds
        return jsonify(
            default_generation_settings={
                "params": {
                    **generation_settings(params, params, engine, app.submitter.settings.seed),
                    "speculative.types": "none" if not kinds else ",".join(kinds),
                },
                "n_ctx": engine.ctx_size,
            },
            total_slots=pool.permits,
            model_alias=app.submitter.model_id,
            # Only the name: the path on the server is not revealed.
            model_path=Path(checkpoint.path).name,
            chat_template="" if template is None else template.source,
            # No field of llama-server's: why these, or why none.
            speculation_reason="" if speculation is None else speculation.reason,
            modalities={"vision": engine.image_reader is not None, "audio": False},
            media_marker=MEDIA_MARKER,
            build_info=f"oxibonsai {__version__}",
            is_sleeping=False,
        )

    @bp.get("/version")
    def version() -> Response:
        return jsonify(version=__version__)

    return bp


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
