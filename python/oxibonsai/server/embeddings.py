"""``/v1/embeddings``: texts to vectors."""

from __future__ import annotations

import base64

from flask import Blueprint, Response, jsonify, request

from oxibonsai.errors import RequestError
from oxibonsai.server.app import Server
from oxibonsai.server.errors import ApiError
from oxibonsai.server.prompts import read_prompts
from oxibonsai.server.schemas.tokens import EmbeddingBody
from oxibonsai.server.validation import check_model, read_body


def embeddings_blueprint(app: Server) -> Blueprint:
    """One route and its names."""
    bp = Blueprint("embeddings", __name__)

    @bp.post("/v1/embeddings")
    @bp.post("/embeddings")
    @bp.post("/embedding")
    def create_embeddings() -> Response:
        body = read_body(EmbeddingBody, request)
        check_model(body.model, app.settings)
        engine = app.generations.loaded.engines[0]
        embedder = engine.embedder
        pooling = app.settings.pooling
        if pooling == "none":
            raise RequestError("--pooling none gives no vector for a text: choose another")
        texts = read_prompts(body.input, engine.tokenizer, "input")
        for i, ids in enumerate(texts):
            if len(ids) > embedder.ctx_size:
                raise ApiError(
                    400,
                    f"input {i} is too large: it has {len(ids)} tokens, more than the "
                    f"{embedder.ctx_size} that fit",
                    kind="exceed_context_size_error",
                    param="input",
                    extra={"n_prompt_tokens": len(ids), "n_ctx": embedder.ctx_size},
                )
        vectors = embedder.embed(texts, pooling=pooling, dimensions=body.dimensions)
        app.generations.metrics.embedded(sum(map(len, texts)))
        count = sum(map(len, texts))
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

    return bp
