"""Health probes: whether the process is alive, and whether it accepts requests."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from oxibonsai.server.access import public
from oxibonsai.server.errors import ApiError
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.stores import Store


def health_blueprint(lifecycle: Lifecycle, store: Store) -> Blueprint:
    """``/health`` (loaded and well), ``/livez`` (alive), ``/readyz`` (send requests here)."""
    bp = Blueprint("health", __name__)

    @bp.get("/health")
    @bp.get("/v1/health")
    @public
    def health() -> Response:
        if lifecycle.phase == Phase.LOADING or lifecycle.failed:
            raise unready(lifecycle)
        return jsonify(status="ok")

    @bp.get("/livez")
    @public
    def livez() -> Response:
        return jsonify(status="ok")

    @bp.get("/readyz")
    @public
    def readyz() -> Response:
        if lifecycle.phase != Phase.READY:
            raise unready(lifecycle)
        if store.failing:
            message = (
                "The store is not writable, so new objects can't be stored; see the server's log."
            )
            raise ApiError(503, message, code="store", retry_after=5)
        return jsonify(status="ok")

    return bp


def unready(lifecycle: Lifecycle) -> ApiError:
    """Return the error of a server that is not ready."""
    if lifecycle.failed:
        message = "The engine has failed: the server is restarting it."
        return ApiError(503, message, code="failed", retry_after=5)
    if lifecycle.phase == Phase.LOADING:
        return ApiError(503, "Loading model", code="loading", retry_after=1)
    return ApiError(503, "The server is shutting down.", code="draining", retry_after=5)
