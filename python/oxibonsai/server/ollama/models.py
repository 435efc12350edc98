"""``/api/tags``, ``/api/ps``, ``/api/show``, ``/api/pull`` and ``/api/version``."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flask import Blueprint, Response, jsonify, request

from oxibonsai import __version__
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, OxiBonsaiError, RequestError, TemplateError
from oxibonsai.known_models import recommend
from oxibonsai.output import find_reasoning_tags
from oxibonsai.quantize.mixes import mix_of_file
from oxibonsai.server.access import for_admins
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import watched
from oxibonsai.server.inputs import input_is_read
from oxibonsai.server.ollama.answer import error_line, timestamp
from oxibonsai.server.ollama.generate import NDJSON
from oxibonsai.server.ollama.request import model_name
from oxibonsai.server.ollama.schemas import OllamaPull, OllamaShow
from oxibonsai.server.registry.downloads import source_to_pull
from oxibonsai.server.registry.entry import Entry
from oxibonsai.server.sampling_fields import default_sampling
from oxibonsai.server.server import Server
from oxibonsai.server.sse import compact, stream_response
from oxibonsai.server.validation import read_body

_POLL_SECONDS = 0.25
_BILLION, _MILLION = 10**9, 10**6


def ollama_models_blueprint(app: Server) -> Blueprint:
    """Return the five routes."""
    bp = Blueprint("ollama_models", __name__)

    @bp.get("/api/version")
    def version() -> Response:
        return jsonify(version=__version__)

    @bp.get("/api/tags")
    def tags() -> Response:
        app.models.refresh()
        return jsonify(models=[_listed(entry) for entry in app.models.entries()])

    @bp.get("/api/ps")
    def running() -> Response:
        loaded = [e for e in app.models.entries() if e.instance is not None]
        return jsonify(models=[_running(entry) for entry in loaded])

    @bp.post("/api/show")
    def show() -> Response:
        body = read_body(OllamaShow, request, untyped=True)
        entry = app.models.find(model_name(_name(body.model or body.name)))
        return jsonify(_shown(entry, verbose=bool(body.verbose)))

    @bp.post("/api/pull")
    @for_admins
    def pull() -> Response:
        body = read_body(OllamaPull, request, untyped=True)
        name = _name(body.model or body.name)
        name = model_name(name)
        input_is_read()
        events = _pull(app, name, source_to_pull(app.settings, name))
        if body.stream is False:
            told = watched(events, request.environ)
            return jsonify([event for event in told if event is not None][-1])
        lines = (None if event is None else compact(event) + "\n" for event in events)
        return stream_response(
            lines,
            close=lambda: None,
            stopping=lambda: app.lifecycle.stopping,
            ping=" ",
            on_error=error_line,
            mimetype=NDJSON,
        )

    return bp


def _name(name: str | None) -> str:
    if not name:
        raise RequestError("model is missing: the name of a model")
    return name


def _pull(app: Server, name: str, source: str) -> Iterator[dict[str, Any] | None]:
    """Download a model and add it to the list; None while there is nothing new.

    The download goes on if the client leaves, and is found by the next request.
    """
    yield {"status": "pulling manifest"}
    download = app.models.downloads.start(name, source)
    told: dict[str, tuple[int, int | None]] = {}
    while True:
        ended = download.ended  # before its files, of which the last may come in between
        for file, (done, total) in dict(download.files).items():
            if told.get(file) != (done, total):
                told[file] = (done, total)
                yield {
                    "status": f"pulling {file}", "digest": file, "total": total, "completed": done,
                }  # fmt: skip
        if download.error is not None:
            raise download.error
        if ended:
            yield {"status": "success"}
            return
        if app.lifecycle.stopping:
            raise ApiError(503, "The server was stopped during the download.")
        yield None
        download.wait(_POLL_SECONDS)


def _listed(entry: Entry) -> dict[str, Any]:
    """Return a model as ``/api/tags`` lists it; what only a loaded or local file tells is left empty."""
    checkpoint = _checkpoint(entry)
    path = None if checkpoint is None else Path(checkpoint.path)
    found = path.stat() if path is not None and path.exists() else None
    return {
        "name": entry.spec.name,
        "model": entry.spec.name,
        "modified_at": timestamp(0 if found is None else found.st_mtime),
        "size": 0 if found is None else found.st_size,
        "digest": "" if checkpoint is None else checkpoint.fingerprint(),
        "details": _details(checkpoint),
    }


def _running(entry: Entry) -> dict[str, Any]:
    instance = entry.instance
    pool = None if instance is None else instance.pool
    if instance is None or pool is None:  # it was unloaded just now
        return _listed(entry)
    engine = pool.engines[0]
    on_card = engine.model.device.free_bytes is not None
    size, keep = instance.memory_bytes, instance.keep_seconds
    # Ollama says "for ever" with a time far away.
    end = time.time() + keep if keep >= 0 else 2**33
    return {
        **_listed(entry),
        "size": size,
        "size_vram": size if on_card else 0,
        "expires_at": timestamp(end),
        "context_length": engine.ctx_size,
    }


def _shown(entry: Entry, *, verbose: bool) -> dict[str, Any]:
    checkpoint = _checkpoint(entry)
    if checkpoint is None:
        raise ApiError(
            503,
            f"Nothing is known of {entry.spec.name!r} before it is loaded: send a request first.",
        )
    file = checkpoint.file
    info = {
        key: _plain(value)
        for key in file.keys()  # noqa: SIM118 - not a dict
        if isinstance(value := file.get(key), (str, int, float, bool))
        or (verbose and isinstance(value, (list, np.ndarray)))
    }
    source = file.get("tokenizer.chat_template", "")
    path = Path(checkpoint.path)
    try:
        recommended = recommend(file, path)
    except FormatError as e:  # such a file can't be loaded either
        raise ApiError(503, str(e).removeprefix(f"{path.parent}/")) from e
    defaults = default_sampling(entry.spec.settings, recommended, None)
    parameters = ("temperature", "top_k", "top_p", "min_p")
    return {
        "modelfile": f"# A GGUF file served by oxibonsai\nFROM {entry.spec.name}\n",
        "parameters": "\n".join(f"{name} {defaults[name]}" for name in parameters),
        "template": source if isinstance(source, str) else "",
        "details": _details(checkpoint),
        "model_info": info,
        "capabilities": _capabilities(entry, checkpoint, source),
        "modified_at": timestamp(),
    }


def _plain(value: Any) -> Any:
    """Return a value of the metadata as JSON has it: null for what is no finite number."""
    if isinstance(value, (list, np.ndarray)):
        values = value.tolist() if isinstance(value, np.ndarray) else value
        return [_plain(one) for one in values]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _capabilities(entry: Entry, checkpoint: Checkpoint, source: Any) -> list[str]:
    instance = entry.instance
    generates = instance.backend.generates if instance is not None else True
    if not generates:
        return ["embedding"]
    found = ["completion"]
    if isinstance(source, str) and source:
        found += ["tools"] if _takes_tools(source) else []
        found += ["thinking"] if find_reasoning_tags(source) is not None else []
    pool = None if instance is None else instance.pool
    engine = None if pool is None else pool.engines[0]
    if engine is not None and engine.has_tokenizer and engine.tokenizer.vocabulary.infill:
        found.append("insert")
    return found


def _takes_tools(source: str) -> bool:
    """Return whether a chat template reads tools; one that can't be read takes none."""
    try:
        return "tools" in ChatTemplate(source).variables
    except TemplateError:
        return False


def _details(checkpoint: Checkpoint | None) -> dict[str, Any]:
    if checkpoint is None:
        return {
            "parent_model": "", "format": "gguf", "family": "", "families": [],
            "parameter_size": "", "quantization_level": "",
        }  # fmt: skip
    count = 0
    types: dict[str, int] = {}
    for tensor in checkpoint.file.tensors:
        elements = 1
        for side in tensor.shape:
            elements *= side
        count += elements
        types[str(tensor.quant_type)] = types.get(str(tensor.quant_type), 0) + elements
    return {
        "parent_model": "",
        "format": "gguf",
        "family": checkpoint.architecture,
        "families": [checkpoint.architecture],
        "parameter_size": _size(count),
        "quantization_level": mix_of_file(
            checkpoint.file.get("general.file_type"), max(types, key=lambda t: types[t], default="")
        ),
    }


def _size(count: int) -> str:
    if count >= _BILLION:
        return f"{count / _BILLION:.1f}B"
    return f"{count / _MILLION:.2f}M"


def _checkpoint(entry: Entry) -> Checkpoint | None:
    """Return the loaded model's, or that of its file if there is one on this machine."""
    instance = entry.instance
    pool = None if instance is None else instance.pool
    if pool is not None:
        return pool.engines[0].model.weights.checkpoint
    path = entry.spec.path
    if path is None or not path.is_file():
        return None
    try:
        checkpoint = Checkpoint(path, entry.spec.settings.quant_type)
        _ = checkpoint.architecture, checkpoint.fingerprint()
    except (OxiBonsaiError, OSError):  # damaged, or no model: listed, but nothing is known of it
        return None
    return checkpoint
