"""``/v1/chat/completions``: generates the next message of a conversation."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.chat import PreparedPrompt
from oxibonsai.engine import Options
from oxibonsai.errors import RequestError
from oxibonsai.output import Reply
from oxibonsai.server.access import owner
from oxibonsai.server.choice import Choice
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.chat_stream import ChatStream
from oxibonsai.server.openai.fingerprint import fingerprint
from oxibonsai.server.openai.logprobs import ShownTokens, chat_form
from oxibonsai.server.openai.prompts import text_of
from oxibonsai.server.openai.schemas.chat import ChatBody, ConversationFields
from oxibonsai.server.openai.stored_completions import stored_completion
from oxibonsai.server.openai.timings import chat_usage, timings
from oxibonsai.server.server import Server
from oxibonsai.server.settings import Settings
from oxibonsai.server.sse import stream_response
from oxibonsai.server.storage_limit import check_room
from oxibonsai.server.stores import Collection
from oxibonsai.server.validation import check_model, read_body
from oxibonsai.tokenizer import Tokenizer


def chat_blueprint(app: Server) -> Blueprint:
    """Routes for chat completions and for counting the tokens of a conversation."""
    bp = Blueprint("chat", __name__)

    @bp.post("/v1/chat/completions")
    @bp.post("/chat/completions")
    def create_chat_completion() -> Response:
        body = read_body(ChatBody, request)
        if body.store:
            check_room()
        generation = begin(app, body)
        head = _head(app)
        whole = partial(_completion, body, generation, head, app.submitter.engine.tokenizer)
        if body.stream:
            keep = partial(_keep, app.store.chat_completions, owner(), body, whole)
            stream = ChatStream(app, body, generation, head, keep if body.store else None)
            return stream_response(
                stream.frames(),
                close=generation.close,
                stopping=lambda: app.lifecycle.stopping,
                # The engine's thread does not wait for the store.
                output_event=None if body.store else generation.output_event,
            )
        with generation:
            generation.wait(request.environ)
            answer = whole()
        if body.store:
            app.store.chat_completions.create(owner(), stored_completion(body, answer))
        if verbose(body.verbose, app.settings) and generation.prepared is not None:
            answer["__verbose"] = verbose_object(
                generation.prepared, app.submitter.engine.tokenizer
            )
        return jsonify(answer)

    @bp.post("/v1/chat/completions/input_tokens")
    @bp.post("/chat/completions/input_tokens")
    def count_tokens() -> Response:
        body = read_body(ConversationFields, request)
        prepared = app.submitter.read_chat(body.chat_request(app.submitter.settings))
        return jsonify(input_tokens=len(prepared.ids))

    return bp


def begin(app: Server, body: ChatBody) -> Generation:
    """Submit a conversation to the engines.

    Raises:
        RequestError, ApiError, CapacityError: See :meth:`Submitter.chat`.
    """
    engine = app.submitter.engine
    check_model(body.model, app.settings)
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs requires logprobs: true", param="top_logprobs")
    params = body.sampling_params(
        app.submitter.settings,
        engine.tokenizer,
        max_tokens=body.limit,
        logprobs=bool(body.logprobs),
        top_logprobs=body.top_logprobs or 0,
    )
    asked = body.chat_request(app.submitter.settings, body.structure())
    speculate = body.speculate(app.submitter.speculate)
    options = Options(cache_salt=body.cache_salt or "", speculate=speculate)
    return app.submitter.chat(asked, params, options, n=body.n or 1, slot=body.id_slot)


def _completion(
    body: ChatBody, generation: Generation, head: dict[str, Any], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return the whole answer."""
    return {
        **head,
        "object": "chat.completion",
        "choices": [_choice(c, body, tokenizer) for c in generation.choices],
        "usage": chat_usage(generation, tokenizer),
        "timings": timings(generation, generation.choices[0]),
    }


def _keep(
    store: Collection, who: str, body: ChatBody, completion: Callable[[], dict[str, Any]]
) -> None:
    store.create(who, stored_completion(body, completion()))


def _choice(choice: Choice, body: ChatBody, tokenizer: Tokenizer) -> dict[str, Any]:
    logprobs = None
    if body.logprobs:
        shown = ShownTokens(choice, tokenizer).take()
        logprobs = {"content": chat_form(shown, tokenizer), "refusal": None}
    return {
        "index": choice.index,
        "message": message(choice.reply),
        "logprobs": logprobs,
        "finish_reason": choice.finish_reason,
    }


def message(reply: Reply) -> dict[str, Any]:
    """Return the assistant's message."""
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in [*reply.tool_calls, *([reply.cut_call] if reply.cut_call else [])]
    ]
    whole: dict[str, Any] = {
        "role": "assistant", "content": reply.content, "refusal": None, "annotations": [],
    }  # fmt: skip
    if reply.reasoning_content:
        whole["reasoning_content"] = reply.reasoning_content
    if calls:
        whole["content"] = reply.content or None
        whole["tool_calls"] = calls
    return whole


def verbose(asked: bool | None, settings: Settings) -> bool:
    """Whether a response includes the prompt."""
    return settings.verbose if asked is None else asked


def verbose_object(prepared: PreparedPrompt, tokenizer: Tokenizer) -> dict[str, Any]:
    """``__verbose``: the prompt as the model reads it."""
    return {"prompt": text_of(prepared.ids, tokenizer), "tokens_evaluated": len(prepared.ids)}


def _head(app: Server) -> dict[str, Any]:
    """Return the members that all chunks of a response share."""
    return {
        "id": f"chatcmpl-{secrets.token_urlsafe(24)}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": app.submitter.model_id,
        "system_fingerprint": fingerprint(),
    }
