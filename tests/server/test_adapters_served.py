"""Adapters of a served model: --lora, --lora-scaled, /lora-adapters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from running_server import wait_until

import adapters
import oxibonsai
from oxibonsai import RequestError, SamplingParams
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings

PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "style.gguf"
    adapters.write(path, adapters.tensors_of(adapters.random_pairs()))
    return path


@pytest.fixture(scope="module")
def app(
    tiny_path: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings = {
        "lora": (str(adapter),),
        "lora_scaled": f"{adapter}:0.25,{adapter}:0",
        "replicas": 2,
    }
    made = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), **settings)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def test_adapters_are_listed_without_their_folders(client: FlaskClient) -> None:
    assert client.get("/lora-adapters").get_json() == [
        {"id": 0, "name": "style", "path": "style.gguf", "scale": 1.0},
        {"id": 1, "name": "style", "path": "style.gguf", "scale": 0.25},
        {"id": 2, "name": "style", "path": "style.gguf", "scale": 0.0},
    ]


def test_texts_are_those_of_the_adapted_model(
    client: FlaskClient, tiny_path: Path, adapter: Path
) -> None:
    body = {
        "prompt": PROMPT, "n_predict": 12, "temperature": 0, "ignore_eos": True, "return_tokens": True,
    }  # fmt: skip
    found = client.post("/completion", json=body).get_json()["tokens"]
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)

    def tokens(engine: oxibonsai.Engine) -> list[int]:
        sequence = engine.submit(PROMPT, params)
        while not sequence.finished:
            engine.step()
        return sequence.generated

    assert found == tokens(oxibonsai.load(tiny_path, lora=[adapter, (adapter, 0.25)]))
    assert found != tokens(oxibonsai.load(tiny_path))


BODY = {
    "prompt": PROMPT, "n_predict": 12, "temperature": 0, "ignore_eos": True, "return_tokens": True,
}  # fmt: skip


def alone(tiny_path: Path, lora: Any) -> list[int]:
    """What the library writes with adapters that are loaded with the model."""
    engine = oxibonsai.load(tiny_path, lora=lora, threads=1, parity="off")
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    sequence = engine.submit(PROMPT, params)
    while not sequence.finished:
        engine.step()
    return sequence.generated


def test_a_request_chooses_scales(client: FlaskClient, tiny_path: Path, adapter: Path) -> None:
    def tokens(**fields: Any) -> list[int]:
        answer = client.post("/completion", json={**BODY, **fields})
        assert answer.status_code == 200, answer.text
        return list(answer.get_json()["tokens"])

    plain = alone(tiny_path, None)
    half = alone(tiny_path, [(adapter, 0.5)])
    assert tokens(lora=[]) == plain
    assert tokens(lora=[{"id": 2, "scale": 0.5}]) == half
    assert tokens() == alone(tiny_path, [adapter, (adapter, 0.25)])
    assert tokens(model="tiny:style") == alone(tiny_path, [adapter])
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "temperature": 0}
    answers = [
        client.post("/v1/chat/completions", json={**chat, **fields}).get_json()
        for fields in ({"model": "tiny:style"}, {"lora": [{"id": 0, "scale": 1.0}]})
    ]
    assert [a["model"] for a in answers] == ["tiny:style", "tiny"]
    assert answers[0]["choices"][0]["message"] == answers[1]["choices"][0]["message"]


def test_background_work_has_the_adapter_that_was_asked_for(client: FlaskClient) -> None:
    body = {
        "model": "tiny:style", "input": "a", "max_output_tokens": 8, "temperature": 0,
        "ignore_eos": True,
    }  # fmt: skip
    at_once = client.post("/v1/responses", json=body).get_json()
    plain = client.post("/v1/responses", json={**body, "lora": [], "model": "tiny"}).get_json()
    made = client.post("/v1/responses", json={**body, "background": True}).get_json()

    def ended() -> bool:
        return client.get(f"/v1/responses/{made['id']}").get_json()["status"] != "in_progress"

    wait_until(lambda: ended() and client.get(f"/v1/responses/{made['id']}").get_json()["output"])
    later = client.get(f"/v1/responses/{made['id']}").get_json()
    assert text(later) == text(at_once) != text(plain)
    assert later["model"] == "tiny:style"


def text(response: dict[str, Any]) -> str:
    return str(response["output"][0]["content"][0]["text"])


def test_scales_are_set_for_later_requests(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, lora=(str(adapter),))
    try:
        client = app.test_client()
        body = [{"id": 0, "scale": 0.5}]
        assert client.post("/lora-adapters", json=body).get_json() == {"success": True}
        assert client.get("/lora-adapters").get_json()[0]["scale"] == 0.5
        found = client.post("/completion", json=BODY).get_json()["tokens"]
        assert found == alone(tiny_path, [(adapter, 0.5)])
        assert client.post("/lora-adapters", json=[]).status_code == 200
        found = client.post("/completion", json=BODY).get_json()["tokens"]
        assert found == alone(tiny_path, None)
    finally:
        close_model_app(app)


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"lora": [{"id": 3, "scale": 1.0}]}, 400, "no adapter with id 3"),
        ({"lora": [{"id": 0, "scale": 1e30}]}, 400, "too large"),
        ({"lora": [{"id": 0}]}, 400, "lora"),
        ({"lora": [{"id": 0, "scale": 1.0}], "model": "tiny:style"}, 400, "chooses an adapter"),
        ({"model": "tiny:other"}, 404, "no adapter 'other'"),
    ],
)
def test_what_there_is_not_is_refused(
    client: FlaskClient, fields: dict[str, Any], status: int, problem: str
) -> None:
    answer = client.post("/completion", json={**BODY, **fields})
    assert answer.status_code == status
    assert problem in answer.get_json()["error"]["message"]


def test_adapters_are_found_by_name_when_they_are_asked_for(
    tiny_path: Path, adapter: Path, tmp_path: Path
) -> None:
    place = tmp_path / "adapters"
    place.mkdir()
    app = make_model_app(
        tiny_path, tmp_path, lora_dir=place, lora_modules=f"own={adapter}", max_loras=2
    )
    try:
        client = app.test_client()
        plain, styled = alone(tiny_path, None), alone(tiny_path, [adapter])

        def tokens(model: str) -> Any:
            answer = client.post("/completion", json={**BODY, "model": model})
            return answer.get_json()["tokens"] if answer.status_code == 200 else answer.status_code

        assert tokens("tiny") == plain
        assert tokens("tiny:own") == styled
        assert tokens("tiny:late") == 404
        shutil.copy(adapter, place / "late.gguf")
        shutil.copy(adapter, place / "more.gguf")
        assert tokens("tiny:late") == styled
        assert tokens("tiny:more") == 503  # two are open
        assert tokens("tiny") == plain
        assert [a["name"] for a in client.get("/lora-adapters").get_json()] == ["own", "late"]
    finally:
        close_model_app(app)


def test_without_adapters_the_list_is_empty(model_client: FlaskClient) -> None:
    assert model_client.get("/lora-adapters").get_json() == []


@pytest.mark.parametrize("value", ["style.gguf", "style.gguf:", "style.gguf:x", "style.gguf:inf"])
def test_a_scaled_adapter_needs_its_scale(value: str, tiny_path: Path) -> None:
    settings = load_settings({"model": str(tiny_path), "lora_scaled": value})
    with pytest.raises(RequestError, match=r"style\.gguf"):
        EngineBackend(settings).load()
