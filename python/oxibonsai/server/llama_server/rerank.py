"""``/v1/rerank``: documents by how well they fit a query, in Jina's and Cohere's shape or in TEI's."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.errors import RequestError
from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import InputWatch, PromptLimit, input_is_read
from oxibonsai.server.llama_server.schemas import RerankBody
from oxibonsai.server.server import Server
from oxibonsai.server.validation import check_model, read_body

MOST_DOCUMENTS = 2048  # per request


def rerank_blueprint(app: Server) -> Blueprint:
    """Return the route under its four paths."""
    bp = Blueprint("rerank", __name__)

    @bp.post("/v1/rerank")
    @bp.post("/v1/reranking")
    @bp.post("/rerank")
    @bp.post("/reranking")
    def rerank() -> Response:
        body = read_body(RerankBody, request)
        check_model(body.model, app.settings)
        engine = app.submitter.loaded.engines[0]
        if engine.model.config.classifier is None:
            raise ApiError(501, "This model has no head that scores texts: it is no reranker.")
        ranker = engine.ranker
        documents = _documents(body)
        limit = PromptLimit(ranker.ctx_size, reserved=0)
        for text in (body.query, *documents):
            limit.check_text(text, engine.tokenizer, "a pair of texts")
        pairs = ranker.pair_ids(body.query, documents, watch=InputWatch(limit))
        input_is_read()
        with app.submitter.tokens.counting(sum(len(pair.tokens) for pair in pairs)):
            ranking = ranker.rank_ids(pairs, top_n=body.top_n)
        app.submitter.metrics.embedded(ranking.tokens)
        label = "relevance_score" if body.texts is None else "score"
        found = [
            {"index": d.index, label: d.score, **_text(body, documents[d.index])}
            for d in ranking.documents
        ]
        if body.texts is not None:  # TEI's answer is the list alone
            return jsonify(found)
        return jsonify(
            object="list",
            model=app.submitter.model_id,
            usage={"prompt_tokens": ranking.tokens, "total_tokens": ranking.tokens},
            results=found,
        )

    return bp


def _documents(body: RerankBody) -> list[str]:
    """Return the texts to rank, in their order."""
    if (body.documents is None) == (body.texts is None):
        raise RequestError(
            "documents is missing: send a list of texts in it, or in texts alone", param="documents"
        )
    field = "texts" if body.documents is None else "documents"
    given = body.texts if body.documents is None else body.documents
    if not given:
        raise RequestError(f"{field} is an empty list: there is nothing to rank", param=field)
    if len(given) > MOST_DOCUMENTS:
        raise RequestError(
            f"{field} has {len(given)} entries: at most {MOST_DOCUMENTS} are allowed", param=field
        )
    return [d if isinstance(d, str) else d.text for d in given]


def _text(body: RerankBody, document: str) -> dict[str, Any]:
    """Return a document's text, where the answer is to hold it."""
    if body.texts is not None:
        return {"text": document} if body.return_text else {}
    return {"document": {"text": document}} if body.return_documents else {}
