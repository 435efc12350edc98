"""``/v1/rerank`` in the shapes of Jina, Cohere and TEI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_bodies import hostile_bodies
from model_app import close_model_app, make_model_app

import bert_folder
from oxibonsai.convert.language_model import convert
from oxibonsai.server.admin.operations import OPERATIONS
from oxibonsai.server.server import Server

RerankBody = OPERATIONS["rerank.rerank"].body
DOCUMENTS = ["tea a b", "un believ able!", "world"]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rerank")
    kind = {"architectures": ["BertForSequenceClassification"]}
    bert_folder.write(folder / "model", config=kind, weights=bert_folder.head(1), modules=[])
    convert(folder / "model", folder / "m.gguf")
    made = make_model_app(folder / "m.gguf", folder / "state")
    yield made
    close_model_app(made)


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking"])
def test_documents_come_back_the_best_first(app: Server, path: str) -> None:
    wanted = app.submitter.loaded.engines[0].rerank("hello", DOCUMENTS)
    body = {"model": "tiny", "query": "hello", "documents": DOCUMENTS}
    answer = app.test_client().post(path, json=body).get_json()
    assert answer["object"] == "list"
    assert answer["model"] == "tiny"
    assert answer["usage"] == {"prompt_tokens": wanted.tokens, "total_tokens": wanted.tokens}
    assert answer["results"] == [
        {"index": d.index, "relevance_score": d.score} for d in wanted.documents
    ]


def test_the_list_of_models_says_that_it_scores(app: Server) -> None:
    (model,) = app.test_client().get("/v1/models").get_json()["data"]
    assert model["architecture"] == {"output_modalities": ["scores"]}


def test_the_document_of_the_routes_has_it(app: Server) -> None:
    paths = app.test_client().get("/openapi.json").get_json()["paths"]
    assert {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"} <= paths.keys()


def test_objects_a_limit_and_texts_in_the_answer(app: Server) -> None:
    objects: list[Any] = [{"text": text} for text in DOCUMENTS]
    body = {"query": "hello", "documents": objects, "top_n": 2, "return_documents": True}
    results = app.test_client().post("/v1/rerank", json=body).get_json()["results"]
    assert len(results) == 2
    assert all(r["document"] == {"text": DOCUMENTS[r["index"]]} for r in results)


def test_texts_get_the_answer_of_tei(app: Server) -> None:
    wanted = app.submitter.loaded.engines[0].rerank("hello", DOCUMENTS).documents
    body = {"query": "hello", "texts": DOCUMENTS, "return_text": True}
    assert app.test_client().post("/rerank", json=body).get_json() == [
        {"index": d.index, "score": d.score, "text": DOCUMENTS[d.index]} for d in wanted
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": "a"}, "documents is missing"),
        ({"query": "a", "documents": ["b"], "texts": ["b"]}, "documents is missing"),
        ({"query": "a", "documents": []}, "documents is an empty list"),
        ({"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
        ({"query": "a", "documents": ["b"] * 2049}, "at most 2048"),
        ({"query": "a", "documents": ["b"], "max_chunks_per_doc": 3}, "max_chunks_per_doc"),
        ({"query": "a", "documents": ["b"], "colour": 3}, "colour"),
        ({"query": "a", "documents": ["b " * 200]}, "context size"),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_name(
    app: Server, body: dict[str, Any], message: str
) -> None:
    answer = app.test_client().post("/v1/rerank", json=body)
    assert answer.status_code == 400
    assert message in answer.get_json()["error"]["message"]


def test_no_body_breaks_the_route(app: Server) -> None:
    client, count = app.test_client(), 0
    for case in hostile_bodies({"query": "a", "documents": ["b"], "top_n": 1}, RerankBody):
        answer = client.post("/v1/rerank", data=case.text, content_type="application/json")
        assert answer.status_code in ({400, 413} if case.refused else {200, 400}), case.name
        count += 1
    assert count > 30


def test_a_reranker_does_not_generate_and_a_generator_does_not_rank(
    app: Server, tiny_path: Path, tmp_path: Path
) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    assert app.test_client().post("/v1/chat/completions", json=chat).status_code == 501
    assert app.test_client().post("/v1/embeddings", json={"input": "a"}).status_code == 200
    other = make_model_app(tiny_path, tmp_path)
    answer = other.test_client().post("/v1/rerank", json={"query": "a", "documents": ["b"]})
    assert answer.status_code == 501
    close_model_app(other)
