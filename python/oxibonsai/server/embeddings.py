"""``/v1/embeddings``: texts to vectors."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt
from flask import Blueprint, Response, jsonify, request

from oxibonsai.errors import RequestError
from oxibonsai.server.app import Server
from oxibonsai.server.inputs import Room, input_is_read
from oxibonsai.server.prompts import read_prompts
from oxibonsai.server.schemas.completion import Prompts
from oxibonsai.server.schemas.tokens import EmbeddingBody, NativeEmbeddingBody
from oxibonsai.server.validation import check_model, read_body

MOST_TEXTS = 2048  # of one request, as OpenAI has it


def embeddings_blueprint(app: Server) -> Blueprint:
    """OpenAI's route under two names, and llama-server's own."""
    bp = Blueprint("embeddings", __name__)

    def embed(
        inputs: Prompts, field: str, dimensions: int | None
    ) -> tuple[list[npt.NDArray[np.float32]], int]:
        """The vectors, and how many tokens the texts have."""
        engine = app.generations.loaded.engines[0]
        embedder = engine.embedder
        pooling = app.settings.pooling
        if pooling == "none":
            raise RequestError("--pooling none gives no vector for a text: choose another")
        room = Room(embedder.ctx_size, rest=0)
        texts = read_prompts(inputs, engine.tokenizer, field, room, MOST_TEXTS)
        for ids in texts:
            room.check_count(len(ids))
        input_is_read()
        vectors = embedder.embed(texts, pooling=pooling, dimensions=dimensions)
        count = sum(map(len, texts))
        app.generations.metrics.embedded(count)
        return list(vectors), count

    @bp.post("/v1/embeddings")
    @bp.post("/embeddings")
    def create_embeddings() -> Response:
        body = read_body(EmbeddingBody, request)
        check_model(body.model, app.settings)
        vectors, count = embed(body.input, "input", body.dimensions)
        return jsonify(
            object="list",
            data=[
                {
                    "object": "embedding",
                    "index": i,
                    "embedding": (
                        base64.b64encode(v.astype("<f4").tobytes()).decode()
                        if body.encoding_format == "base64"
                        else v.tolist()
                    ),
                }
                for i, v in enumerate(vectors)
            ],
            model=app.backend.models()[0].id,
            usage={"prompt_tokens": count, "total_tokens": count},
        )

    @bp.post("/embedding")
    def create_native_embeddings() -> Response:
        body = read_body(NativeEmbeddingBody, request)
        given = ("content", body.content) if body.input is None else ("input", body.input)
        if given[1] is None:
            raise RequestError("content is missing: a text, or a list of texts")
        vectors, _ = embed(given[1], given[0], None)
        # A list of vectors each, as llama-server can give one for every token.
        return jsonify([{"index": i, "embedding": [v.tolist()]} for i, v in enumerate(vectors)])

    return bp
