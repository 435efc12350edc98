"""``/v1/models``: the models that are served."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.errors import ApiError
from oxibonsai.server.registry.registry import ModelRegistry


def models_blueprint(models: ModelRegistry, image_model: ModelInfo | None) -> Blueprint:
    """Return the routes that list all models and get one by its id or an alias.

    Args:
        models: Those that read and write text.
        image_model: The one that draws; None: there is none.
    """
    bp = Blueprint("models", __name__)

    def listed() -> list[ModelInfo]:
        return [*models.models(), *([] if image_model is None else [image_model])]

    @bp.get("/v1/models")
    @bp.get("/models")
    def list_models() -> Response:
        if request.args.get("reload") in ("1", "true"):
            models.refresh()
        if _is_anthropic():
            return jsonify(_anthropic_page(listed()))
        return jsonify(object="list", data=[_as_object(m) for m in listed()])

    @bp.get("/v1/models/<path:model_id>")
    @bp.get("/models/<path:model_id>")
    def get_model(model_id: str) -> Response:
        for model in listed():
            if model_id in (model.id, *model.aliases):
                shape = _anthropic_model if _is_anthropic() else _as_object
                return jsonify(shape(model))
        raise ApiError(
            404,
            f"The model '{model_id[:80]}' does not exist; GET /v1/models lists those that do.",
            param="model",
            code="model_not_found",
        )

    return bp


def _is_anthropic() -> bool:
    """Return whether a client of Anthropic's API asks, which always sends this header."""
    return "anthropic-version" in request.headers


def _anthropic_page(models: Sequence[ModelInfo]) -> dict[str, Any]:
    data = [_anthropic_model(model) for model in models]
    return {
        "data": data,
        "has_more": False,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
    }


def _anthropic_model(model: ModelInfo) -> dict[str, Any]:
    created = datetime.fromtimestamp(model.created, timezone.utc)
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": created.isoformat().replace("+00:00", "Z"),
    }


def _as_object(model: ModelInfo) -> dict[str, Any]:
    status: dict[str, Any] = {"value": model.status}
    if model.failed:
        status["failed"] = True
    if model.progress:
        status["progress"] = dict(model.progress)
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "oxibonsai",
        "aliases": list(model.aliases),
        "tags": list(model.tags),
        "status": status,
        "architecture": {"output_modalities": [model.output]},
        "meta": dict(model.meta),
    }
