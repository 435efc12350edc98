"""``/api/embed`` and the older ``/api/embeddings``."""

from __future__ import annotations

import time

from flask import Blueprint, Response, jsonify, request

from oxibonsai.server.inputs import PromptLimit, input_is_read
from oxibonsai.server.ollama.generate import use
from oxibonsai.server.ollama.request import note_context
from oxibonsai.server.ollama.schemas import OllamaEmbed, OllamaEmbeddings
from oxibonsai.server.openai.embeddings import MOST_TEXTS, truncated
from oxibonsai.server.openai.prompts import read_prompts
from oxibonsai.server.openai.schemas.completion import Prompts
from oxibonsai.server.server import Server
from oxibonsai.server.validation import read_body


def ollama_embed_blueprint(app: Server) -> Blueprint:
    """Return the two routes."""
    bp = Blueprint("ollama_embed", __name__)

    def vectors(
        body: OllamaEmbed | OllamaEmbeddings,
        inputs: Prompts,
        *,
        cut: bool = True,
        dimensions: int | None = None,
        normalize: bool = True,
    ) -> tuple[list[list[float]], int]:
        """Return the vectors, and the number of tokens."""
        submitter = use(app, body)
        engine = submitter.loaded.engines[0]
        note_context(body.options, engine)
        limit = PromptLimit(engine.embedder.ctx_size, reserved=0)
        bound = None if cut else limit
        read = read_prompts(inputs, engine.tokenizer, "input", bound, MOST_TEXTS)
        texts = [prompt.ids for prompt in read]
        if cut:
            texts = [truncated(ids, engine.embedder.ctx_size, engine.tokenizer) for ids in texts]
        for ids in texts:
            limit.check_count(len(ids))
        input_is_read()
        count = sum(map(len, texts))
        with submitter.tokens.counting(count):
            found = engine.embedder.embed(
                texts,
                pooling=submitter.settings.pooling,
                dimensions=dimensions,
                normalize=normalize,
            )
        submitter.metrics.embedded(count)
        return [v.tolist() for v in found], count

    @bp.post("/api/embed")
    def embed() -> Response:
        arrived = time.perf_counter()
        body = read_body(OllamaEmbed, request, untyped=True)
        found: list[list[float]] = []
        count = 0
        if body.input:
            one = isinstance(body.input, str)
            texts: Prompts = str(body.input) if one else [*body.input]

            found, count = vectors(
                body, texts, cut=body.truncate is not False, dimensions=body.dimensions
            )
        return jsonify(
            model=body.model,
            embeddings=found,
            total_duration=int(1e9 * (time.perf_counter() - arrived)),
            load_duration=0,
            prompt_eval_count=count,
        )

    @bp.post("/api/embeddings")
    def embeddings() -> Response:
        body = read_body(OllamaEmbeddings, request, untyped=True)
        found, _ = vectors(body, body.prompt, normalize=False)
        return jsonify(embedding=found[0])

    return bp
