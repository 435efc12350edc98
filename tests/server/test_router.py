"""Downloading, removing and watching models, as with llama-server's router; admin keys."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import MakeApp
from flask.testing import FlaskClient
from running_server import wait_until
from web_files import take_for_public, web_server

from oxibonsai.errors import CapacityError, SourceError
from oxibonsai.server.app import create_app
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.engine_backend import served_models
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.registry import downloads
from oxibonsai.server.registry.entry import ModelEvents
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.sources.progress import LISTENER


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose clients may pull models; it begins with none."""
    take_for_public(monkeypatch)
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    settings = load_settings(
        {"state_dir": tmp_path, "threads": 1, "parity": "off", "allow_pull": True}
    )
    models = served_models(settings, Lifecycle())
    models.load()
    made = create_app(settings, models)
    made.lifecycle.advance(Phase.READY)
    yield made
    made.lifecycle.advance(Phase.STOPPED)
    models.close()
    made.store.close()


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def status_of(client: FlaskClient, name: str) -> dict[str, Any] | None:
    found = {m["id"]: m["status"] for m in client.get("/v1/models").get_json()["data"]}
    return found.get(name)


def until(events: Iterator[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(event for event in events if event["event"] == name)


def test_a_model_is_downloaded_loaded_and_removed(client: FlaskClient, tiny_path: Path) -> None:
    content = tiny_path.read_bytes()
    watch = client.get("/models/sse")
    lines = iter(watch.response)
    next(lines)
    events = (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
    with web_server(content) as address:
        name = f"{address}/tiny.gguf"
        assert client.post("/models", json={"model": name}).get_json() == {"success": True}
        progress = until(events, "download_progress")
        assert progress["model"] == name
        assert {p["total"] for p in progress["data"].values()} <= {len(content), None}
        until(events, "download_finished")
    assert client.post("/models", json={"model": name}).status_code == 400  # it is there already
    assert status_of(client, name) == {"value": "unloaded"}
    client.post("/models/load", json={"model": name})
    states = [until(events, "model_status")["data"]["status"] for _ in range(2)]
    assert states == ["loading", "loaded"]
    assert client.delete(f"/models?model={name}:adapter").status_code == 400
    assert client.delete(f"/models?model={name}").get_json() == {"success": True}
    until(events, "model_remove")
    assert status_of(client, name) is None
    assert client.delete(f"/models?model={name}").status_code == 404
    watch.close()


def test_a_failed_download_is_told(client: FlaskClient) -> None:
    watch = client.get("/models/sse")
    lines = iter(watch.response)
    next(lines)
    with web_server(b"") as address:
        client.post("/models", json={"model": f"{address}/none.gguf"})
        events = (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
        assert "error" in until(events, "download_failed")["data"]
    watch.close()


class Hub:
    """Stands for the web: downloads end when they are told to."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.begun: list[str] = []

    def __call__(self, source: str, *, progress: bool, public_only: bool) -> Path:
        self.begun.append(source)
        told = LISTENER.get()
        assert told is not None
        while not self.free.wait(0.005):
            told("file.gguf", 1, 2)
        raise SourceError("there is no such file")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    monkeypatch.setattr(downloads, "resolve", made)
    yield made
    made.free.set()


def test_a_few_models_are_downloaded_at_a_time_and_each_once(client: FlaskClient, hub: Hub) -> None:
    for name in ("org/one", "org/two:Q4_0", "org/one"):
        assert client.post("/models", json={"model": name}).status_code == 200
    wait_until(lambda: len(hub.begun) == 2)
    assert sorted(hub.begun) == ["hf:org/one", "hf:org/two:Q4_0"]
    refused = client.post("/models", json={"model": "org/three"})
    assert refused.status_code == 503
    assert refused.headers["Retry-After"]
    wait_until(lambda: (status_of(client, "org/one") or {}).get("progress") is not None)
    assert status_of(client, "org/one") == {
        "value": "downloading", "progress": {"file.gguf": {"done": 1, "total": 2}},
    }  # fmt: skip


def test_a_download_is_cancelled_as_a_model_is_unloaded(client: FlaskClient, hub: Hub) -> None:
    client.post("/models", json={"model": "org/one"})
    # Ollama's way to unload concerns models that are there.
    unload = client.post("/api/generate", json={"model": "org/one", "keep_alive": 0})
    assert unload.status_code == 404
    assert client.post("/models/unload", json={"model": "org/one"}).status_code == 200
    wait_until(lambda: status_of(client, "org/one") is None)


def test_only_what_was_pulled_is_removed(make_app: MakeApp, tiny_path: Path) -> None:
    app = make_app()
    client = app.test_client()
    assert client.post("/models", json={"model": "org/one"}).status_code == 403
    assert client.delete("/models?model=default").status_code == 400
    assert client.delete("/models").status_code == 400


def test_watchers_are_limited_and_slow_ones_miss_events() -> None:
    events = ModelEvents(most_watchers=1)
    watcher = events.join("")
    with pytest.raises(CapacityError):
        events.join("")
    for n in range(1005):
        events.tell("m", "model_status", {"n": n})
    assert watcher.qsize() == 1000
    events.leave(watcher)
    events.leave(watcher)
    assert isinstance(events.join(""), queue.Queue)


ADMIN_CALLS = (
    ("POST", "/models/load"), ("POST", "/models/unload"), ("POST", "/models"),
    ("DELETE", "/models"), ("POST", "/api/pull"), ("POST", "/lora-adapters"),
)  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ADMIN_CALLS)
def test_what_concerns_all_keys_needs_an_admin_key_if_there_are_any(
    make_app: MakeApp, method: str, path: str
) -> None:
    client = make_app(api_key=["key"], admin_key=["root"]).test_client()

    def call(key: str | None) -> Any:
        headers = {} if key is None else {"X-Api-Key": key}
        return client.open(path, method=method, json={"model": "x"}, headers=headers)

    assert call(None).status_code == 401
    assert call("wrong").status_code == 401
    refused = call("key")
    assert refused.status_code == 403
    assert "--admin-key-file" in refused.text
    assert "--admin-key-file" not in call("root").text
    listed = client.get("/v1/models", headers={"X-Api-Key": "root"})
    assert listed.status_code == 200  # it is an API key, too


def test_admin_keys_work_on_a_server_that_is_open_to_all(make_app: MakeApp) -> None:
    client = make_app(admin_key=["root"]).test_client()
    assert client.get("/v1/models").status_code == 200
    assert client.post("/models/load", json={"model": "x"}).status_code == 403
    loaded = client.post("/models/load", json={"model": "x"}, headers={"X-Api-Key": "root"})
    assert loaded.status_code == 200


def test_the_image_model_is_listed(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    from oxibonsai.server.image_worker import ImageWorker

    drawing = ModelInfo("painter", 1, ("painter",), output="image")
    monkeypatch.setattr(ImageWorker, "info", drawing)
    client = make_app().test_client()
    outputs = {
        m["id"]: m["architecture"]["output_modalities"]
        for m in client.get("/v1/models").get_json()["data"]
    }
    assert outputs == {"fake": ["text"], "painter": ["image"]}
    assert client.get("/v1/models/painter").status_code == 200
