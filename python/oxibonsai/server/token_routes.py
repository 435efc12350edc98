"""``/tokenize``, ``/detokenize`` and ``/apply-template``: what the model reads."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.chat import render
from oxibonsai.server.app import Server
from oxibonsai.server.schemas.chat import ConversationFields
from oxibonsai.server.schemas.tokens import DetokenizeBody, TokenizeBody
from oxibonsai.server.validation import read_body
from oxibonsai.tokenizer import Tokenizer


def token_blueprint(app: Server) -> Blueprint:
    """The three routes."""
    bp = Blueprint("tokens", __name__)

    def tokenizer() -> Tokenizer:
        return app.generations.loaded.engines[0].tokenizer

    @bp.post("/tokenize")
    def tokenize() -> Response:
        body = read_body(TokenizeBody, request)
        words = tokenizer()
        ids = words.encode(
            body.content, add_special=body.add_special, parse_special=body.parse_special
        )
        if not body.with_pieces:
            return jsonify(tokens=ids)
        return jsonify(tokens=[{"id": i, "piece": _piece(words.token_bytes(i))} for i in ids])

    @bp.post("/detokenize")
    def detokenize() -> Response:
        body = read_body(DetokenizeBody, request)
        return jsonify(content=tokenizer().decode(body.tokens, skip_special=False))

    @bp.post("/apply-template")
    def apply_template() -> Response:
        body = read_body(ConversationFields, request)
        return jsonify(prompt=render(app.generations.engine, body.chat_request(app.settings)))

    return bp


def _piece(data: bytes) -> Any:
    """Text, or the values of its bytes where it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
