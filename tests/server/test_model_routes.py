"""Embeddings, tokens, templates, properties and metrics of a served model."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app

import oxibonsai
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.errors import FormatError
from oxibonsai.server.server import Server


def test_vectors_come_as_numbers_and_as_base64(model_client: FlaskClient) -> None:
    body = {"input": ["ab", "c", "ab"]}
    answer = model_client.post("/v1/embeddings", json=body).get_json()
    rows = [d["embedding"] for d in answer["data"]]
    assert [d["index"] for d in answer["data"]] == [0, 1, 2]
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert rows[0] == rows[2] != rows[1]
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    coded = model_client.post("/v1/embeddings", json={**body, "encoding_format": "base64"})
    data = [base64.b64decode(d["embedding"]) for d in coded.get_json()["data"]]
    assert [np.frombuffer(d, "<f4").tolist() for d in data] == rows


def test_a_large_batch_of_texts_is_taken(model_client: FlaskClient) -> None:
    texts = [chr(65 + i % 26) for i in range(2048)]
    answer = model_client.post("/v1/embeddings", json={"input": texts})
    assert [d["index"] for d in answer.get_json()["data"]] == list(range(2048))
    assert model_client.post("/v1/embeddings", json={"input": [*texts, "a"]}).status_code == 400


@pytest.mark.parametrize("field", ["content", "input"])
def test_llama_servers_route_gives_its_own_form(model_client: FlaskClient, field: str) -> None:
    vectors = model_client.post("/v1/embeddings", json={"input": ["ab", "c"]}).get_json()["data"]
    answer = model_client.post("/embedding", json={field: ["ab", "c"]})
    assert answer.get_json() == [
        {"index": i, "embedding": [v["embedding"]]} for i, v in enumerate(vectors)
    ]
    assert model_client.post("/embedding", json={}).status_code == 400


def test_vectors_can_be_shortened(model_client: FlaskClient) -> None:
    body = {"input": [5, 6, 7], "dimensions": 4}
    (item,) = model_client.post("/v1/embeddings", json=body).get_json()["data"]
    assert len(item["embedding"]) == 4
    assert np.linalg.norm(item["embedding"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("value", [[], {"content": "x"}, "x" * 600, [1, 10**6], None, 7])
def test_what_has_no_vector_is_refused(model_client: FlaskClient, value: object) -> None:
    assert model_client.post("/v1/embeddings", json={"input": value}).status_code == 400


def test_a_server_of_embeddings_writes_no_texts(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, embedding=True, pooling="mean")
    try:
        client = app.test_client()
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
        (model,) = client.get("/v1/models").get_json()["data"]
        assert model["architecture"] == {"output_modalities": ["embeddings"]}
        body = {"messages": [{"role": "user", "content": "a"}]}
        assert client.post("/v1/chat/completions", json=body).status_code == 501
        assert client.post("/v1/completions", json={"prompt": "a"}).status_code == 501
        assert client.post("/tokenize", json={"content": "a"}).status_code == 200
    finally:
        close_model_app(app)


def test_tokens_and_text_are_each_others_inverse(model_client: FlaskClient) -> None:
    text = "ab 媽 🤗 <|im_end|>"
    tokens = model_client.post("/tokenize", json={"content": text}).get_json()["tokens"]
    assert 257 in tokens
    back = model_client.post("/detokenize", json={"tokens": tokens}).get_json()
    assert back == {"content": text, "prompt": text}  # as llama-server and as vLLM
    whole = model_client.post("/tokenize", json={"prompt": text, "model": "tiny"}).get_json()
    assert whole == {"tokens": tokens, "count": len(tokens), "max_model_len": 512}
    for wrong in ({}, {"content": text, "prompt": text}):
        assert model_client.post("/tokenize", json=wrong).status_code == 400
    body = {"content": text, "with_pieces": True, "parse_special": False}
    pieces = model_client.post("/tokenize", json=body).get_json()["tokens"]
    assert 257 not in [p["id"] for p in pieces]
    data = [p["piece"] for p in pieces]
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in data).decode() == text


def test_a_decomposed_text_has_the_tokens_of_the_composed_one(model_client: FlaskClient) -> None:
    """Its model's own tokenizer composes; llama-server does not, as it reads the same file."""
    texts = ["cafe\u0301 \u1112\u1161\u11ab", "caf\u00e9 \ud55c"]
    bodies = [{"content": text, "with_pieces": True} for text in texts]
    ids, expected = (model_client.post("/tokenize", json=b).get_json()["tokens"] for b in bodies)
    assert ids == expected
    answers = [
        model_client.post("/v1/completions", json={"prompt": t, "max_tokens": 4, "temperature": 0})
        for t in texts
    ]
    for field in ("usage", "choices"):
        assert answers[0].get_json()[field] == answers[1].get_json()[field]
    counts = [model_client.post("/tokenize", json={"prompt": t}).get_json()["count"] for t in texts]
    assert counts == [answers[0].get_json()["usage"]["prompt_tokens"]] * 2


def test_properties_tell_no_folder(model_client: FlaskClient) -> None:
    props = model_client.get("/props").get_json()
    assert props["model_path"] == "tiny.gguf"
    assert props["total_slots"] == 4
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert props["default_generation_settings"]["params"]["seed"] == 7
    assert "<|im_start|>" in props["chat_template"]
    slots = model_client.get("/slots").get_json()
    assert [s["is_processing"] for s in slots] == [False] * 4


def test_slots_can_be_turned_off(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, slots=False)
    try:
        assert app.test_client().get("/slots").status_code == 501
    finally:
        close_model_app(app)


def values(text: str) -> dict[str, float]:
    """Samples without labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#") and "{" not in line]
    return {name: float(value) for name, value in (line.split(" ") for line in lines)}


def test_metrics_count_what_answers_say(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, metrics=True)
    try:
        client = app.test_client()
        answers = [
            client.post("/v1/completions", json={"prompt": "a" * 100, "max_tokens": 5, "n": 2})
            for _ in range(2)
        ]
        usage = [a.get_json()["usage"] for a in answers]
        response = client.get("/metrics")
        found = values(response.text)
    finally:
        close_model_app(app)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
    assert cached == 64
    assert found["oxibonsai_prompt_tokens_total"] == 200 - cached
    assert found["oxibonsai_prefix_cache_hit_tokens_total"] == cached
    assert found["oxibonsai_generation_tokens_total"] == 20
    assert found["oxibonsai_time_to_first_token_seconds_count"] == 4
    assert found["oxibonsai_queue_seconds_count"] == 2
    assert found["oxibonsai_requests_running"] == 0
    assert found["oxibonsai_kv_cache_usage_ratio"] == 0
    assert found["oxibonsai_kv_pressure_ratio"] == 0
    assert found["oxibonsai_step_sequences_total"] > found["oxibonsai_steps_total"] > 0
    assert found["llamacpp:tokens_predicted_total"] == 20
    assert found["llamacpp:prompt_tokens_cached_total"] == cached
    assert int(response.headers["Process-Start-Time-Unix"]) > 1_600_000_000


def test_the_page_is_there_unless_turned_off(
    model_app: Server, tiny_path: Path, tmp_path: Path
) -> None:
    for path in ("/", "/docs"):
        with model_app.test_client().get(path) as page:
            assert page.status_code == 200
            assert page.mimetype == "text/html"
    app = make_model_app(tiny_path, tmp_path, ui=False)
    try:
        for path in ("/", "/docs"):
            assert app.test_client().get(path).status_code == 404
    finally:
        close_model_app(app)


def test_a_template_that_is_no_jinja_is_refused_before_the_server_is_ready(
    tiny_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match="no valid Jinja"):
        make_model_app(tiny_path, tmp_path, chat_template="{% for %}")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ [[[1] * 9999] * 9999] * 9999 }}",
        "{{ cycler() }}",
    ],
)
def test_a_hostile_template_fails_its_requests_and_nothing_else(
    model_app: Server, monkeypatch: pytest.MonkeyPatch, template: str, path: str
) -> None:
    monkeypatch.setattr(model_app.backend, "chat_template", ChatTemplate(template))
    client = model_app.test_client()
    messages = [{"role": "user", "content": "a"}]
    said = (
        {"input": messages} if path == "/v1/responses" else {"messages": messages, "max_tokens": 1}
    )
    body = {"model": "tiny", **said}
    answer = client.post(path, json=body)
    assert (answer.status_code < 500, "chat template" in answer.text) == (True, True), answer.text
    assert client.get("/health").status_code == 200
    assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_the_tokenizer_is_described(model_client: FlaskClient) -> None:
    info = model_client.get("/tokenizer_info").get_json()
    assert info["tokenizer_class"] == "gpt2"
    assert info["eos_token"] == "<|im_end|>"
    assert info["bos_token"] is None
    assert info["added_tokens_decoder"]["256"] == {"content": "<|im_start|>", "special": True}
    assert info["vocab_size"] == 300
    assert "<|im_start|>" in info["chat_template"]


def test_anthropics_clients_get_models_in_their_shape(model_client: FlaskClient) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    page = model_client.get("/v1/models", headers=headers).get_json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "tiny", "tiny")
    (model,) = page["data"]
    assert (model["type"], model["id"], model["display_name"]) == ("model", "tiny", "tiny")
    assert model["created_at"].endswith("Z")
    assert model_client.get("/v1/models/tiny", headers=headers).get_json() == model
    assert "owned_by" in model_client.get("/v1/models/tiny").get_json()


def test_an_unknown_path_is_named_and_the_list_of_routes_too(model_client: FlaskClient) -> None:
    message = model_client.get("/v1/modells").get_json()["error"]["message"]
    assert "'/v1/modells'" in message
    assert "/openapi.json" in message
    assert model_client.get("/version").get_json() == {"version": oxibonsai.__version__}
