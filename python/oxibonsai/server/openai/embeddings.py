"""``/v1/embeddings`` and llama-server's ``/embedding``."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt
from flask import Blueprint, Response, jsonify, request

from oxibonsai.errors import RequestError
from oxibonsai.server.inputs import PromptLimit, input_is_read
from oxibonsai.server.openai.prompts import read_prompts
from oxibonsai.server.openai.schemas.completion import EmbeddingBody, NativeEmbeddingBody, Prompts
from oxibonsai.server.server import Server
from oxibonsai.server.validation import check_model, read_body
from oxibonsai.tokenizer import Tokenizer

MOST_TEXTS = 2048  # per request; OpenAI's limit


def embeddings_blueprint(app: Server) -> Blueprint:
    """Serve OpenAI's route under its two paths, and llama-server's native one."""
    bp = Blueprint("embeddings", __name__)

    def embed(
        inputs: Prompts,
        field: str,
        *,
        dimensions: int | None = None,
        pooling: str | None = None,
        normalize: bool = True,
        most_tokens: int | None = None,
    ) -> tuple[list[npt.NDArray[np.float32]], int]:
        """Return the vectors, and the number of tokens in the texts."""
        engine = app.submitter.loaded.engines[0]
        embedder = engine.embedder
        pooling = pooling or app.submitter.settings.pooling
        if pooling == "none":
            raise RequestError("with --pooling none texts have no vector: send another pooling")
        prompt_limit = PromptLimit(embedder.ctx_size, reserved=0)
        # A prompt that will be truncated may be longer.
        bound = prompt_limit if most_tokens is None else None
        read = read_prompts(inputs, engine.tokenizer, field, bound, MOST_TEXTS)
        texts = [prompt.ids for prompt in read]
        if most_tokens is not None:
            most = embedder.ctx_size if most_tokens == -1 else most_tokens
            texts = [truncated(ids, most, engine.tokenizer) for ids in texts]
        for ids in texts:
            prompt_limit.check_count(len(ids))
        input_is_read()
        count = sum(map(len, texts))
        with app.submitter.tokens.counting(count):
            vectors = embedder.embed(
                texts, pooling=pooling, dimensions=dimensions, normalize=normalize
            )
        app.submitter.metrics.embedded(count)
        return list(vectors), count

    @bp.post("/v1/embeddings")
    @bp.post("/embeddings")
    def create_embeddings() -> Response:
        body = read_body(EmbeddingBody, request)
        check_model(body.model, app.settings)
        vectors, count = embed(
            body.input,
            "input",
            dimensions=body.dimensions,
            pooling=body.pooling,
            normalize=body.normalize is not False,
            most_tokens=body.truncate_prompt_tokens,
        )
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
            model=app.submitter.model_id,
            usage={"prompt_tokens": count, "total_tokens": count},
        )

    @bp.post("/embedding")
    def create_native_embeddings() -> Response:
        body = read_body(NativeEmbeddingBody, request)
        given = ("content", body.content) if body.input is None else ("input", body.input)
        if given[1] is None:
            raise RequestError("content is missing: a text, or a list of texts")
        vectors, _ = embed(given[1], given[0])
        # A list of vectors for each text: llama-server can return one for every token.
        return jsonify([{"index": i, "embedding": [v.tolist()]} for i, v in enumerate(vectors)])

    return bp


def truncated(ids: list[int], most: int, tokenizer: Tokenizer) -> list[int]:
    """Return the first tokens of a text, with its EOS token if it has one."""
    if most == 0:
        raise RequestError("truncate_prompt_tokens is 0: nothing would be left of the text")
    if len(ids) <= most:
        return ids
    framed = tokenizer.vocabulary.add_eos and ids[-1] == tokenizer.eos_id
    return [*ids[: most - 1], ids[-1]] if framed else ids[:most]
