"""``/api/chat`` and ``/api/generate``."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, g, jsonify, request

from oxibonsai.engine import Engine, Options
from oxibonsai.errors import RequestError
from oxibonsai.server.access import check_admin
from oxibonsai.server.generation import Generation
from oxibonsai.server.inputs import PromptLimit, read_text
from oxibonsai.server.lost_work import repeatable
from oxibonsai.server.ollama.answer import OllamaAnswer, error_line, timestamp
from oxibonsai.server.ollama.request import (
    chat_request,
    keep_alive_seconds,
    model_name,
    prompt_request,
    sampling,
    structure_of,
)
from oxibonsai.server.ollama.schemas import (
    OllamaChat,
    OllamaGenerate,
    OllamaGeneration,
    OllamaRequest,
)
from oxibonsai.server.openai.infill import infill_params, infill_prompt
from oxibonsai.server.server import Server
from oxibonsai.server.sse import stream_response
from oxibonsai.server.submitter import Submitter
from oxibonsai.server.validation import read_body

NDJSON = "application/x-ndjson"


def ollama_generate_blueprint(app: Server) -> Blueprint:
    """Return the two routes."""
    bp = Blueprint("ollama_generate", __name__)

    @bp.post("/api/chat")
    @repeatable
    def chat() -> Response:
        arrived = time.perf_counter()
        body = read_body(OllamaChat, request, untyped=True)
        if not body.messages:
            message = {"role": "assistant", "content": ""}
            return _loaded(app, body, {"message": message})
        submitter = use(app, body)
        asked = chat_request(body, submitter.settings)
        params = sampling(body, submitter.settings, submitter.engine, asked.thinks)
        generation = submitter.chat(asked, params)
        answer = _answer(body, generation, submitter.engine, arrived, chat=True)
        return _respond(app, body, generation, answer)

    @bp.post("/api/generate")
    @repeatable
    def generate() -> Response:
        arrived = time.perf_counter()
        body = read_body(OllamaGenerate, request, untyped=True)
        if not (body.prompt or body.suffix or body.context):
            return _loaded(app, body, {"response": ""})
        submitter = use(app, body)
        generation, context = _continue(body, submitter)
        answer = _answer(body, generation, submitter.engine, arrived, chat=False, context=context)
        return _respond(app, body, generation, answer)

    return bp


def use(app: Server, body: OllamaRequest) -> Submitter:
    """Return the model of a request, kept loaded as long as the request says.

    Raises:
        ApiError: It says something new, which needs an admin key where there are any.
    """
    g.model_name = model_name(body.model)
    keep = keep_alive_seconds(body.keep_alive)
    instance = app.use_model(g.model_name)
    if keep is not None and keep != instance.keep_seconds:
        check_admin()
        instance.keep_seconds = keep
    return instance.submitter


def _loaded(app: Server, body: OllamaGeneration, part: dict[str, Any]) -> Response:
    """Return the answer to a request without a text, which loads or unloads the model."""
    reason = "load"
    if keep_alive_seconds(body.keep_alive) == 0:
        reason = "unload"
        check_admin()
        app.models.unload(model_name(body.model), missing_ok=True)
    else:
        use(app, body)
    return jsonify(model=body.model, created_at=timestamp(), **part, done=True, done_reason=reason)


def _continue(body: OllamaGenerate, submitter: Submitter) -> tuple[Generation, list[int] | None]:
    """Start the generation of ``/api/generate``; the tokens of its prompt if they are returned."""
    engine = submitter.engine
    limit = PromptLimit(engine.ctx_size)
    if body.suffix:
        _refuse(body, "suffix fills a gap")
        if body.raw:
            raise RequestError("suffix fills a gap: leave out raw")
        ids = infill_prompt(engine.tokenizer, body.prompt or "", body.suffix, limit)
        params = infill_params(sampling(body, submitter.settings, engine), engine.tokenizer)
        return submitter.text(ids, params, Options(structure=structure_of(body))), None
    if body.raw:
        _refuse(body, "raw sends the prompt as it is")
        params = sampling(body, submitter.settings, engine)
        ids = read_text(body.prompt or "", engine.tokenizer, limit)
        return submitter.text(ids, params, Options(structure=structure_of(body))), None
    if body.context and body.images:
        raise RequestError("context goes with texts alone: send pictures to /api/chat")
    asked = prompt_request(body, submitter.settings)
    params = sampling(body, submitter.settings, engine, asked.thinks)
    prepared = submitter.read_chat(asked, limit)
    if body.context:
        engine.check_ids(body.context)
        ids = prepared.ids
        if ids and ids[0] == engine.tokenizer.bos_id:
            ids = ids[1:]
        prepared = replace(prepared, ids=[*body.context, *ids])
    return submitter.prompt(prepared, params), prepared.ids


def _refuse(body: OllamaGenerate, why: str) -> None:
    """Raise RequestError for fields of a conversation, where there is none."""
    for name in ("system", "context", "images", "think"):
        if getattr(body, name):
            raise RequestError(f"{why}: leave out {name}")


def _answer(
    body: OllamaGeneration,
    generation: Generation,
    engine: Engine,
    arrived: float,
    *,
    chat: bool,
    context: list[int] | None = None,
) -> OllamaAnswer:
    return OllamaAnswer(
        body.model, generation, engine.tokenizer, arrived=arrived, chat=chat,
        logprobs=bool(body.logprobs), context=context,
    )  # fmt: skip


def _respond(
    app: Server, body: OllamaGeneration, generation: Generation, answer: OllamaAnswer
) -> Response:
    if body.stream is not False:
        return stream_response(
            answer.lines(),
            close=generation.close,
            stopping=lambda: app.lifecycle.stopping,
            ping=" ",  # before the next line's object, where JSON allows it
            on_error=error_line,
            output_event=generation.output_event,
            mimetype=NDJSON,
        )
    with generation:
        generation.wait(request.environ)
        return jsonify(answer.whole())
