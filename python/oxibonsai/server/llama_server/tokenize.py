"""``/tokenize``, ``/detokenize``, ``/tokenizer_info`` and ``/apply-template``."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.chat import render
from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import InputWatch, read_text
from oxibonsai.server.llama_server.schemas import DetokenizeBody, TokenizeBody
from oxibonsai.server.openai.schemas.chat import ConversationFields
from oxibonsai.server.server import Server
from oxibonsai.server.sse import compact
from oxibonsai.server.submitter import Submitter
from oxibonsai.server.validation import read_body
from oxibonsai.tokenizer import StreamDecoder, Tokenizer

_TOKENS_AT_ONCE = 4096


def token_blueprint(app: Server) -> Blueprint:
    """Return the four routes."""
    bp = Blueprint("tokens", __name__)

    def tokenizer() -> Tokenizer:
        return app.submitter.loaded.engines[0].tokenizer

    @bp.post("/tokenize")
    def tokenize() -> Response:
        body = read_body(TokenizeBody, request)
        words = tokenizer()
        if body.prompt is None:
            text, add_special = body.content or "", body.add_special
        else:
            text, add_special = body.prompt, body.add_special_tokens
        ids = read_text(text, words, add_special=add_special, parse_special=body.parse_special)
        more: dict[str, int] = {}
        if body.prompt is not None:
            more = {"count": len(ids), "max_model_len": app.submitter.engine.ctx_size}
        shown = _written(_packed(ids), words if body.with_pieces else None, more)
        return Response(shown, mimetype="application/json")

    @bp.get("/tokenizer_info")
    def tokenizer_info() -> Response:
        return jsonify(_info(app.submitter))

    @bp.post("/detokenize")
    def detokenize() -> Response:
        body = read_body(DetokenizeBody, request)
        text = _text(body.tokens, tokenizer(), app.settings.max_body_bytes)
        return jsonify(content=text, prompt=text)  # llama-server's name and vLLM's

    @bp.post("/apply-template")
    def apply_template() -> Response:
        body = read_body(ConversationFields, request)
        submitter = app.submitter
        asked = body.chat_request(submitter.settings)
        prompt = render(
            submitter.engine, asked, template=submitter.chat_template, watch=InputWatch()
        )
        return jsonify(prompt=prompt)

    return bp


def _info(submitter: Submitter) -> dict[str, Any]:
    """Return the answer of vLLM's route, under the names of ``tokenizer_config.json``."""
    engine = submitter.loaded.engines[0]
    vocabulary = engine.tokenizer.vocabulary
    template = submitter.chat_template

    def text(token: int | None) -> str | None:
        return None if token is None else vocabulary.texts[token]

    return {
        "tokenizer_class": engine.model.weights.checkpoint.file.get("tokenizer.ggml.model"),
        "model_max_length": engine.ctx_size,
        "vocab_size": len(vocabulary.texts),
        "bos_token": text(vocabulary.bos_id),
        "eos_token": text(vocabulary.eos_id),
        "unk_token": text(vocabulary.unk_id),
        "pad_token": text(vocabulary.pad_id),
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": vocabulary.add_eos,
        "added_tokens_decoder": {
            str(i): {"content": vocabulary.texts[i], "special": True}
            for i in sorted(vocabulary.special_ids)
        },
        "chat_template": None if template is None else template.source,
    }


def _packed(ids: list[int]) -> array[int]:
    """Return the ids as an array of 4 bytes each."""
    packed = array("i")
    for start in range(0, len(ids), _TOKENS_AT_ONCE):
        packed.extend(ids[start : start + _TOKENS_AT_ONCE])
    return packed


def _written(ids: array[int], words: Tokenizer | None, more: dict[str, int]) -> Iterator[str]:
    """Yield the response in pieces: as one text, it would take many times the memory of the ids."""
    yield '{"tokens":['
    for start in range(0, len(ids), _TOKENS_AT_ONCE):
        some = ids[start : start + _TOKENS_AT_ONCE]
        shown = some.tolist() if words is None else [_shown(i, words) for i in some]
        yield ("," if start else "") + compact(shown)[1:-1]
    yield "]" + "".join(f',"{name}":{value}' for name, value in more.items()) + "}\n"


def _text(ids: list[int], words: Tokenizer, most_bytes: int) -> str:
    """Return the text of the ids, if it is not larger than the largest request body."""
    watch = InputWatch()
    stream = StreamDecoder(words, skip_special=False)
    parts: list[str] = []
    size = 0
    for start in range(0, len(ids), _TOKENS_AT_ONCE):
        watch(0)
        part = "".join(map(stream.feed, ids[start : start + _TOKENS_AT_ONCE]))
        size += len(part.encode())
        if size > most_bytes:
            raise ApiError(
                400,
                f"tokens: their text has more than {most_bytes} bytes, the limit of this server: send "
                "fewer tokens at a time",
                param="tokens",
            )
        parts.append(part)
    return "".join([*parts, stream.flush()])


def _shown(token: int, words: Tokenizer) -> dict[str, Any]:
    return {"id": token, "piece": _piece(words.token_bytes(token))}


def _piece(data: bytes) -> Any:
    """Return the piece as text, or as a list of bytes if it is not valid UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
