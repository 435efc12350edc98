"""``/v1/messages``: Anthropic's Messages API, and errors in its format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, g, jsonify, request

from oxibonsai.server.anthropic.blocks import BlockWriter, Event
from oxibonsai.server.anthropic.request import chat_request, sampling
from oxibonsai.server.anthropic.schemas import CountRequest, MessageRequest
from oxibonsai.server.errors import as_api_error, error_response
from oxibonsai.server.generation import Generation
from oxibonsai.server.http.client import POLL_SECONDS, watched
from oxibonsai.server.lost_work import repeatable
from oxibonsai.server.server import Server
from oxibonsai.server.sse import frame, stream_response
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id
from oxibonsai.server.validation import read_body

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(error: Exception) -> Response:
    """Return the HTTP response for an error: the usual status and headers with Anthropic's body."""
    response = error_response(error)
    response.set_data(json.dumps(anthropic_error_body(error, g.get("request_id"))))
    return response


def error_event(error: Exception) -> str:
    """Return the error event that ends a failed stream."""
    return frame(anthropic_error_body(error, g.get("request_id")), "error")


def anthropic_error_body(error: Exception, request_id: str | None) -> dict[str, Any]:
    """Return the body of an error response."""
    told = as_api_error(error)
    kind = "api_error" if told.status >= 500 else "invalid_request_error"
    return {
        "type": "error",
        "error": {"type": _TYPES.get(told.status, kind), "message": str(told)},
        "request_id": request_id,
    }


_STOP_REASONS = {"tool_calls": "tool_use", "length": "max_tokens"}
_PING = frame({"type": "ping"}, "ping")


def messages_blueprint(app: Server) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("messages", __name__)

    @bp.post("/v1/messages")
    @repeatable
    def create() -> Response:
        body = read_body(MessageRequest, request)
        submitter = app.submitter
        engine = submitter.engine
        asked = chat_request(body, submitter.chat_template)
        omitted = body.thinking is not None and body.thinking.display == "omitted"
        writer = BlockWriter(omit_thoughts=omitted)
        params = sampling(body, submitter.settings, engine, asked.thinks)
        generation = submitter.chat(asked, params, call_prefix="toolu_")
        if body.stream:
            return stream_response(
                _frames(submitter.model_id, generation, writer),
                close=generation.close,
                stopping=lambda: app.lifecycle.stopping,
                ping=_PING,
                on_error=error_event,
                output_event=generation.output_event,
            )
        with generation:
            return jsonify(_whole(submitter.model_id, generation, writer))

    @bp.post("/v1/messages/count_tokens")
    def count_tokens() -> Response:
        body = read_body(CountRequest, request)
        submitter = app.submitter
        prepared = submitter.read_chat(chat_request(body, submitter.chat_template))
        return jsonify(input_tokens=len(prepared.ids))

    return bp


def _whole(model: str, generation: Generation, writer: BlockWriter) -> Object:
    for _ in watched(_events(generation, writer), request.environ):
        pass
    return {**_message(model, generation), "content": writer.blocks, **_stop(generation)}


def _events(generation: Generation, writer: BlockWriter) -> Iterator[Event | None]:
    """Yield the events of the content; None when there was no output for a while."""
    for index, delta in generation.stream():
        if delta is not None:
            events = writer.feed(delta)
            yield from events
            if not events:
                yield None
        elif index < 0:
            yield None
    yield from writer.finish()


def _frames(model: str, generation: Generation, writer: BlockWriter) -> Iterator[str | None]:
    while not generation.start(POLL_SECONDS):
        yield None
    start = {"type": "message_start", "message": _message(model, generation)}
    yield frame(start, "message_start")
    yield _PING
    for event in _events(generation, writer):
        yield None if event is None else frame(event, event["type"])
    usage = _usage(generation)
    delta = {"type": "message_delta", "delta": _stop(generation), "usage": usage}
    yield frame(delta, "message_delta")
    yield frame({"type": "message_stop"}, "message_stop")


def _stop(generation: Generation) -> Object:
    """Return the stop reason: ``tool_use``, ``max_tokens``, ``stop_sequence`` or ``end_turn``."""
    choice = generation.choices[0]
    matched = choice.sequence.matched_stop
    reason = _STOP_REASONS.get(choice.finish_reason or "", "end_turn")
    if reason == "end_turn" and isinstance(matched, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    return {"stop_reason": reason, "stop_sequence": None}


def _message(model: str, generation: Generation) -> Object:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": _usage(generation),
    }


def _usage(generation: Generation) -> Object:
    cached = generation.cached_tokens
    return {
        # Anthropic counts cached tokens separately.
        "input_tokens": generation.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generation.completion_tokens,
        # Not applicable here, or not counted.
        "output_tokens_details": None,
        "cache_creation": None,
        "inference_geo": None,
        "server_tool_use": None,
        "service_tier": "standard",
    }
