"""The routes of llama-server's router: load, unload, download and remove models, and watch them."""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator

from flask import Blueprint, Response, jsonify, request

from oxibonsai.errors import RequestError
from oxibonsai.server.access import for_admins, owner
from oxibonsai.server.http.client import POLL_SECONDS
from oxibonsai.server.llama_server.schemas import ModelName
from oxibonsai.server.registry.downloads import source_to_pull
from oxibonsai.server.registry.entry import Event
from oxibonsai.server.server import Server
from oxibonsai.server.sse import frame, stream_response
from oxibonsai.server.validation import read_body

# llama-server's names of models on the hub: org/repo, or org/repo:QUANT.
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def router_blueprint(app: Server) -> Blueprint:
    """Return the routes; all but the events return at once, ``/models`` has the state."""
    bp = Blueprint("router", __name__)

    @bp.post("/models/load")
    @for_admins
    def load() -> Response:
        app.models.start_loading(read_body(ModelName, request).model)
        return jsonify(success=True)

    @bp.post("/models/unload")
    @for_admins
    def unload() -> Response:
        name = read_body(ModelName, request).model
        if (download := app.models.downloads.find(name)) is not None:
            download.cancel()
        else:
            app.models.unload(name)
        return jsonify(success=True)

    @bp.post("/models")
    @for_admins
    def download() -> Response:
        name = read_body(ModelName, request).model
        source = f"hf:{name}" if _REPOSITORY.fullmatch(name) else name
        source = source_to_pull(app.settings, source)
        if any(name in entry.spec.names for entry in app.models.entries()):
            raise RequestError(f"model: {name[:80]!r} exists already")
        app.models.downloads.start(name, source)
        return jsonify(success=True)

    @bp.delete("/models")
    @for_admins
    def remove() -> Response:
        name = request.args.get("model")
        if not name:
            raise RequestError("model is missing: name it in the query, as ?model=NAME")
        app.models.remove(name)
        return jsonify(success=True)

    @bp.get("/models/sse")
    def events() -> Response:
        watcher = app.models.events.join(owner())
        return stream_response(
            _frames(watcher),
            close=lambda: app.models.events.leave(watcher),
            stopping=lambda: app.lifecycle.stopping,
        )

    return bp


def _frames(watcher: queue.Queue[Event]) -> Iterator[str | None]:
    # So that the client knows that it misses nothing from now on.
    yield ": watching\n\n"
    while True:
        try:
            yield frame(watcher.get(timeout=POLL_SECONDS))
        except queue.Empty:
            yield None
