"""Adapters of a served model: --lora, --lora-scaled, /lora-adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app

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
        {"id": 0, "path": "style.gguf", "scale": 1.0},
        {"id": 1, "path": "style.gguf", "scale": 0.25},
        {"id": 2, "path": "style.gguf", "scale": 0.0},
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


def test_scales_can_not_be_set_later(client: FlaskClient) -> None:
    answer = client.post("/lora-adapters", json=[{"id": 0, "scale": 0.5}])
    assert answer.status_code == 400
    assert "--lora-scaled" in answer.get_json()["error"]["message"]
    body = {"prompt": PROMPT, "n_predict": 1, "lora": [{"id": 0, "scale": 0.5}]}
    answer = client.post("/completion", json=body)
    assert answer.status_code == 400
    assert "--lora-scaled" in answer.get_json()["error"]["message"]
    assert client.post("/completion", json={**body, "lora": []}).status_code == 200


def test_without_adapters_the_list_is_empty(model_client: FlaskClient) -> None:
    assert model_client.get("/lora-adapters").get_json() == []


@pytest.mark.parametrize("value", ["style.gguf", "style.gguf:", "style.gguf:x", "style.gguf:inf"])
def test_a_scaled_adapter_needs_its_scale(value: str, tiny_path: Path) -> None:
    settings = load_settings({"model": str(tiny_path), "lora_scaled": value})
    with pytest.raises(RequestError, match=r"style\.gguf"):
        EngineBackend(settings).load()
