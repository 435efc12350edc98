"""Several models in one server: which there are, who loads them, and when they go."""

from __future__ import annotations

import json
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from real_server import real_server
from running_server import wait_until
from url_sweep import all_calls

import oxibonsai
import tiny_model
from oxibonsai import SamplingParams
from oxibonsai.engine import EnginePool
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.app import create_app
from oxibonsai.server.engine_backend import EngineBackend, served_models
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings

# The folder has files of vision towers, which are none.
pytestmark = pytest.mark.filterwarnings("ignore:the vision tower in")

ASK = {"prompt": "ab", "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models: ``one`` and ``two`` as files, ``three`` in a folder of its own."""
    place = tmp_path_factory.mktemp("models")
    (place / "three").mkdir()
    for seed, path in enumerate(["one.gguf", "two.gguf", "three/weights.gguf"], 1):
        tiny_model.write(place / path, seed=seed)
    for name in ("mmproj-one.gguf", "one-mmproj-f16.gguf"):
        (place / name).write_bytes(b"no model")
    (place / "notes.txt").write_text("no model")
    return place


class Apps:
    """Applications on several models; closed at the end of the test."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._made: list[Server] = []

    def __call__(self, make_backend: Any = None, **values: Any) -> Server:
        given = {"state_dir": self._state, "threads": 1, "parity": "off", "seed": 7, **values}
        settings = load_settings(given)
        lifecycle = Lifecycle()
        models = served_models(settings, lifecycle)
        if make_backend is not None:
            models = ModelRegistry(settings, lifecycle, make_backend)
        models.load()
        app = create_app(settings, models)
        app.lifecycle.advance(Phase.READY)
        self._made.append(app)
        return app

    def close(self) -> None:
        for app in self._made:
            app.models.close()
            app.store.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Apps]:
    apps = Apps(tmp_path / "state")
    yield apps
    apps.close()


def test_a_listed_model_that_is_not_there_is_told_at_the_start(
    serve: Apps, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = f"one={folder}/one.gguf"
    with caplog.at_level("WARNING", logger="oxibonsai.server"):
        serve(models=(there, f"typo={folder}/oen.gguf", "hub=hf:org/repo", "seedling-1bit"))
    (told,) = (r.getMessage() for r in caplog.records if "not there" in r.getMessage())
    assert told.startswith("the model typo is not there: ")
    assert f"{folder}/oen.gguf does not exist" in told


def text(client: FlaskClient, model: str, **fields: Any) -> str:
    answer = client.post("/v1/completions", json={**ASK, "model": model, **fields})
    assert answer.status_code == 200, answer.text
    body = answer.get_json()
    assert body["model"] == model
    return str(body["choices"][0]["text"])


def statuses(client: FlaskClient) -> dict[str, str]:
    data = client.get("/v1/models").get_json()["data"]
    return {m["id"]: m["status"]["value"] for m in data}


def wait_for(client: FlaskClient, **expected: str) -> None:
    def is_so() -> bool:
        return expected.items() <= statuses(client).items()

    wait_until(is_so, lambda: statuses(client))


def alone(path: Path) -> str:
    """What the library writes with one model."""
    engine = oxibonsai.load(path, threads=1, parity="off")
    params = SamplingParams(max_tokens=8, temperature=0)
    sequence = engine.submit(engine.tokenizer.encode("ab"), params)
    while not sequence.finished:
        engine.step()
    return sequence.text


def test_a_folder_is_listed_and_its_models_load_when_they_are_named(
    serve: Apps, folder: Path
) -> None:
    client = serve(models_dir=folder).test_client()
    assert statuses(client) == dict.fromkeys(["one", "three", "two"], "unloaded")
    texts = {name: text(client, name) for name in ("two", "one", "three")}
    assert len(set(texts.values())) == 3
    assert texts["one"] == alone(folder / "one.gguf")
    assert texts["three"] == alone(folder / "three" / "weights.gguf")
    assert set(statuses(client).values()) == {"loaded"}
    assert client.get("/v1/models/two").get_json()["meta"]["n_ctx"] == 512


def test_a_name_that_is_not_listed_is_unknown(serve: Apps, folder: Path) -> None:
    client = serve(models_dir=folder).test_client()
    bodies: dict[str, dict[str, Any]] = {
        "/v1/completions": ASK,
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
        "/v1/responses": {"input": "a"},
        "/v1/embeddings": {"input": "a"},
        "/v1/rerank": {"query": "a", "documents": ["b"]},
        "/tokenize": {"content": "a"},
        "/models/load": {},
    }
    for path, body in bodies.items():
        answer = client.post(path, json={**body, "model": "x"})
        assert answer.status_code == 404, (path, answer.text)
        assert answer.get_json()["error"]["code"] == "model_not_found"
    unnamed = client.post("/v1/completions", json=ASK)
    assert (unnamed.status_code, unnamed.get_json()["error"]["param"]) == (400, "model")


def test_every_api_chooses_by_name(serve: Apps, folder: Path) -> None:
    client = serve(models_dir=folder).test_client()
    said = [{"role": "user", "content": "a"}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": said, "max_tokens": 2},
        "/v1/responses": {"input": "a", "max_output_tokens": 2},
        "/v1/messages": {"messages": said, "max_tokens": 2},
        "/completion": {"prompt": "a", "n_predict": 2},
        "/v1/embeddings": {"input": "a"},
    }
    for path, body in bodies.items():
        for name in ("one", "two"):
            answer = client.post(path, json={**body, "model": name}).get_json()
            assert answer["model"] == name, path
    for name in ("one", "two"):
        assert client.get(f"/props?model={name}").get_json()["model_alias"] == name
    assistant = client.post("/v1/assistants", json={"model": "two"}).get_json()
    body = {"assistant_id": assistant["id"], "thread": {"messages": said}, "stream": True}
    with client.post("/v1/threads/runs", json=body) as stream:
        assert '"model":"two"' in stream.text
        assert "thread.run.completed" in stream.text or "thread.run.incomplete" in stream.text


def test_a_list_names_its_models(serve: Apps, folder: Path) -> None:
    models = (f"first={folder / 'one.gguf'}", str(folder / "two.gguf"))
    client = serve(models=models).test_client()
    assert list(statuses(client)) == ["first", "two"]
    assert text(client, "first") == alone(folder / "one.gguf")


TOML = """
["*"]
parallel = 2

[one]
temperature = 0.0
n-predict = 3
alias = ["uno"]
load-on-startup = true

[other]
model = "{folder}/three/weights.gguf"
ctx-size = 128
"""
INI = """version = 1
; for all
[*]
np = 2

[one]
temp = 0
n-predict = 3
alias = uno
load-on-startup = true

[other]
model = {folder}/three/weights.gguf
c = 128
"""


@pytest.mark.parametrize(("name", "content"), [("models.toml", TOML), ("models.ini", INI)])
def test_presets_set_what_one_model_uses(
    serve: Apps, folder: Path, tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content.format(folder=folder))
    client = serve(models_dir=folder, models_preset=tmp_path / name).test_client()
    assert statuses(client)["one"] == "loaded"
    assert statuses(client)["other"] == "unloaded"
    for model in ("other", "two"):
        client.post("/models/load", json={"model": model})
        wait_for(client, **{model: "loaded"})
    props = client.get("/props?model=other").get_json()
    assert props["default_generation_settings"]["n_ctx"] == 128
    assert props["total_slots"] == 2
    assert client.get("/props?model=two").get_json()["total_slots"] == 4
    answer = client.post("/v1/completions", json={"model": "uno", "prompt": "ab"}).get_json()
    assert (answer["model"], answer["usage"]["completion_tokens"]) == ("one", 3)
    # Without a name, the one of the start answers.
    assert client.post("/v1/completions", json={"prompt": "ab"}).get_json()["model"] == "one"


def test_the_model_of_the_start_may_lie_in_the_folder(serve: Apps, folder: Path) -> None:
    client = serve(model=str(folder / "two.gguf"), models_dir=folder).test_client()
    assert statuses(client) == {"two": "loaded", "one": "unloaded", "three": "unloaded"}
    assert client.post("/v1/completions", json=ASK).get_json()["model"] == "two"


def test_the_least_recently_used_model_makes_room(serve: Apps, folder: Path) -> None:
    client = serve(models_dir=folder, models_max=2).test_client()
    for name in ("one", "two", "one", "three"):
        text(client, name)
    assert statuses(client) == {"one": "loaded", "two": "unloaded", "three": "loaded"}


def test_loaded_models_stay_within_their_memory(serve: Apps, folder: Path) -> None:
    app = serve(models_dir=folder, models_memory_gb=1)
    text(app.test_client(), "one")
    size = app.models.default.memory_bytes
    assert size > (folder / "one.gguf").stat().st_size
    small = serve(models_dir=folder, models_memory_gb=2.5 * size / 2**30).test_client()
    for name in ("one", "two", "three"):
        text(small, name)
    assert statuses(small) == {"one": "unloaded", "two": "loaded", "three": "loaded"}
    tight = serve(models_dir=folder, models_memory_gb=0.5 * size / 2**30).test_client()
    answer = tight.post("/v1/completions", json={**ASK, "model": "one"})
    assert answer.status_code == 503
    assert "--models-memory-gb" in answer.get_json()["error"]["message"]
    assert tight.get("/v1/models/one").get_json()["status"] == {
        "value": "unloaded", "failed": True,
    }  # fmt: skip


def test_a_model_loads_and_unloads_when_told_to(serve: Apps, folder: Path) -> None:
    client = serve(models_dir=folder, models_autoload=False).test_client()
    answer = client.post("/v1/completions", json={**ASK, "model": "one"})
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (503, "model_not_loaded")
    assert client.post("/models/load", json={"model": "one"}).get_json() == {"success": True}
    wait_for(client, one="loaded")
    text(client, "one")
    assert client.post("/models/unload", json={"model": "one"}).get_json() == {"success": True}
    assert statuses(client)["one"] == "unloaded"
    assert client.post("/models/unload", json={"model": "one"}).status_code == 400
    again = client.post("/v1/completions?autoload=1", json={**ASK, "model": "one"})
    assert again.status_code == 200


def test_no_get_loads_a_model(serve: Apps, folder: Path) -> None:
    """A page of another site can send one, and the model in use would make room."""
    app = serve(models_dir=folder, models_max=1, slots=True)
    client = app.test_client()
    text(client, "one")
    before = app.models.find("one").instance
    refused = set()
    for method, path, rule in all_calls(app, object_id="two"):
        if method != "GET":
            continue
        for query in ({"model": "two"}, {"model": "two", "autoload": "1"}):
            for sent in ("GET", "HEAD"):
                answer = client.open(path, method=sent, query_string=query)
                answer.close()  # a stream of events has no end
                if answer.status_code == 503:
                    refused.add(rule)
        assert app.models.find("one").instance is before, rule
        assert statuses(client) == {"one": "loaded", "two": "unloaded", "three": "unloaded"}, rule
    assert refused == {"/props", "/slots", "/lora-adapters", "/tokenizer_info"}
    answer = client.get("/slots?model=two&autoload=1").get_json()
    assert answer["error"]["code"] == "model_not_loaded"
    assert "POST /models/load" in answer["error"]["message"]
    assert client.get("/slots?model=one").status_code == 200


def test_no_get_wakes_the_only_model(serve: Apps, folder: Path) -> None:
    app = serve(model=str(folder / "one.gguf"), alias="one", sleep_idle_seconds=3600, slots=True)
    client = app.test_client()
    app.models.default.last_used -= 3600
    wait_for(client, one="sleeping")
    assert client.get("/slots?model=one").get_json()["error"]["code"] == "model_not_loaded"
    assert statuses(client) == {"one": "sleeping"}


def test_an_unloaded_model_leaves_the_memory(serve: Apps, folder: Path) -> None:
    app = serve(models_dir=folder)
    client = app.test_client()
    text(client, "one")
    engine = app.models.default.backend.pool.engines[0]  # type: ignore[union-attr]
    gone = [weakref.ref(engine), weakref.ref(engine.model), weakref.ref(engine.cache)]
    del engine
    client.post("/models/unload", json={"model": "one"})
    assert [ref() for ref in gone] == [None] * 3


def test_a_stream_goes_on_while_its_model_is_unloaded_and_others_load(
    serve: Apps, folder: Path
) -> None:
    client = serve(models_dir=folder, models_max=1).test_client()
    whole = text(client, "one", max_tokens=200, ignore_eos=True)
    body = {**ASK, "model": "one", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with client.post("/v1/completions", json=body) as stream:
        pieces = iter(stream.response)
        first = [next(pieces)]
        # No room for two, so the other one waits until this stream is over.
        with client.application.test_client() as other:
            found: list[str] = []
            thread = threading.Thread(target=lambda: found.append(text(other, "two")))
            thread.start()
            assert statuses(client)["one"] == "loaded"
            rest = b"".join([*first, *pieces]).decode()
    thread.join(60)
    chunks = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")]
    assert "".join(c["text"] for chunk in chunks for c in chunk["choices"]) == whole
    assert found == [alone(folder / "two.gguf")]
    assert statuses(client) == {"one": "unloaded", "two": "loaded", "three": "unloaded"}
    assert whole == text(client, "one", max_tokens=200, ignore_eos=True)


class Slow(EngineBackend):
    """Loads when the test says so."""

    go = threading.Event()
    loads = 0

    def load(self) -> None:
        type(self).loads += 1
        assert self.go.wait(60)
        super().load()


def test_requests_wait_for_a_model_that_loads_and_others_go_on(serve: Apps, folder: Path) -> None:
    class Mine(Slow):
        go = threading.Event()

    Mine.go.set()
    app = serve(Mine, models_dir=folder, http_threads=8)
    text(app.test_client(), "one")
    Mine.go.clear()
    found: list[str] = []
    waiting = [
        threading.Thread(target=lambda: found.append(text(app.test_client(), "two")))
        for _ in range(2)
    ]
    for thread in waiting:
        thread.start()
    client = app.test_client()
    wait_for(client, two="loading")
    wait_until(lambda: sum(e.waiting.total() for e in app.models._entries.values()) == 2)
    text(client, "one")
    # A quarter of the threads may wait, so that others are left.
    refused = client.post("/v1/completions", json={**ASK, "model": "three"})
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    Mine.go.set()
    for thread in waiting:
        thread.join(60)
    assert found == [alone(folder / "two.gguf")] * 2
    assert Mine.loads == 2


def test_models_are_loaded_for_keys_in_turn(serve: Apps, folder: Path) -> None:
    order: list[str] = []

    class Mine(Slow):
        go = threading.Event()

        def load(self) -> None:
            order.append(self._settings.alias[0])
            super().load()

    models = serve(Mine, models_dir=folder).models

    def ask(name: str, owner: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: models.lease(name, owner=owner).release())
        thread.start()
        wait_until(lambda: models.find(name).waiting[owner] == 1)
        return thread

    waiting = [ask("one", "a")]
    wait_until(lambda: order)
    waiting += [ask("two", "a"), ask("three", "b")]
    Mine.go.set()
    for thread in waiting:
        thread.join(60)
    assert order == ["one", "three", "two"]


def test_a_large_request_gives_its_turn_back_while_its_model_loads(
    serve: Apps, folder: Path
) -> None:
    """Whoever uses the model in the way may wait for that turn."""

    class Mine(Slow):
        go = threading.Event()

    app = serve(Mine, models_dir=folder)
    body = {**ASK, "model": "one", "prompt": "a " * (1 << 20)}
    found: list[int] = []
    large = threading.Thread(
        target=lambda: found.append(
            app.test_client().post("/v1/completions", json=body).status_code
        )
    )
    large.start()
    wait_until(lambda: Mine.loads == 1)
    with app.large_requests.turn():
        pass
    Mine.go.set()
    large.join(60)
    assert found == [400]  # too long for the context


def test_a_model_that_was_given_up_may_be_asked_for_again(serve: Apps, folder: Path) -> None:
    class Mine(Slow):
        go = threading.Event()

    client = serve(Mine, models_dir=folder).test_client()
    for path in ("load", "unload", "load"):
        answer = client.post(f"/models/{path}", json={"model": "one"})
        assert answer.status_code == 200
        if path == "load":
            wait_until(lambda: Mine.loads == 1)
    Mine.go.set()
    wait_for(client, one="loaded")
    assert Mine.loads == 1


def test_a_preset_that_changes_while_its_model_loads_holds(
    serve: Apps, folder: Path, tmp_path: Path
) -> None:
    class Mine(Slow):
        go = threading.Event()

    path = tmp_path / "models.toml"
    path.write_text("[one]\nctx-size = 128")
    client = serve(Mine, models_dir=folder, models_preset=path).test_client()
    client.post("/models/load", json={"model": "one"})
    wait_until(lambda: Mine.loads == 1)
    path.write_text("[one]\nctx-size = 64")
    client.get("/models?reload=1")
    Mine.go.set()
    wait_for(client, one="loaded")
    assert client.get("/v1/models/one").get_json()["meta"]["n_ctx"] == 64


def test_a_model_that_fails_halfway_leaves_the_memory(serve: Apps, folder: Path) -> None:
    made: list[weakref.ref[EnginePool]] = []

    class Failing(EngineBackend):
        def _prepare(self, pool: EnginePool) -> None:
            made.append(weakref.ref(pool))
            raise OxiBonsaiError("no template")

    client = serve(Failing, models_dir=folder).test_client()
    answer = client.post("/v1/completions", json={**ASK, "model": "one"})
    assert answer.get_json()["error"]["code"] == "model_failed"
    wait_until(lambda: made[0]() is None)


def test_a_model_that_nobody_uses_sleeps_and_wakes(serve: Apps, folder: Path) -> None:
    model = folder / "one.gguf"
    app = serve(model=str(model), alias="one", sleep_idle_seconds=3600)
    client = app.test_client()
    assert statuses(client) == {"one": "loaded"}
    assert app.models.default is not None
    app.models.default.last_used -= 3600
    wait_for(client, one="sleeping")
    props = client.get("/props").get_json()
    assert (props["is_sleeping"], props["model_alias"]) == (True, "one")
    assert statuses(client) == {"one": "sleeping"}
    assert text(client, "one") == alone(model)
    assert client.get("/props").get_json()["is_sleeping"] is False


def test_a_changed_file_is_loaded_anew_and_a_broken_one_is_not(
    serve: Apps, folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "models"
    place.mkdir()
    model = place / "own.gguf"
    shutil.copy(folder / "one.gguf", model)
    app = serve(models_dir=place)
    client = app.test_client()
    assert text(client, "own") == alone(folder / "one.gguf")
    replace(folder / "two.gguf", model)
    wait_until(lambda: text(client, "own") == alone(folder / "two.gguf"))
    broken = tmp_path / "broken"
    broken.write_bytes(b"GGUF and no more")
    replace(broken, model)
    entry = app.models.find("own")
    wait_until(lambda: entry.failure is not None)
    assert text(client, "own") == alone(folder / "two.gguf")


def test_the_old_version_goes_first_where_there_is_no_room_for_both(
    serve: Apps, folder: Path, tmp_path: Path
) -> None:
    alive: list[bool] = []
    loaded: list[EngineBackend] = []

    class Watching(EngineBackend):
        def load(self) -> None:
            alive.append(any(earlier.pool is not None for earlier in loaded))
            loaded.append(self)
            super().load()

    app = serve(models_dir=folder, models_memory_gb=1)
    text(app.test_client(), "one")
    size = app.models.default.memory_bytes
    for factor, beside in ((1.5, False), (2.5, True)):
        place = tmp_path / str(factor)
        place.mkdir()
        model = place / "own.gguf"
        shutil.copy(folder / "one.gguf", model)
        loaded.clear()
        app = serve(Watching, models_dir=place, models_memory_gb=factor * size / 2**30)
        client = app.test_client()
        assert text(client, "own") == alone(folder / "one.gguf")
        replace(folder / "two.gguf", model)
        wait_until(lambda client=client: text(client, "own") == alone(folder / "two.gguf"))
        assert alive[-1] == beside


def replace(source: Path, target: Path) -> None:
    new = target.with_suffix(".new")
    shutil.copy(source, new)
    os.replace(new, target)


def test_the_folder_is_read_again(serve: Apps, folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "models"
    place.mkdir()
    client = serve(models_dir=place).test_client()
    assert statuses(client) == {}
    shutil.copy(folder / "one.gguf", place / "late.gguf")
    text(client, "late")  # a name that is not known yet is looked for
    (place / "late.gguf").unlink()
    shutil.copy(folder / "two.gguf", place / "later.gguf")
    assert client.get("/models?reload=1").status_code == 200
    assert statuses(client) == {"later": "unloaded"}


def test_a_model_that_can_not_be_loaded_says_why_each_time(
    serve: Apps, tmp_path: Path, folder: Path
) -> None:
    place = tmp_path / "models"
    place.mkdir()
    (place / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    client = serve(models_dir=place).test_client()
    for _ in range(2):
        answer = client.post("/v1/completions", json={**ASK, "model": "bad"})
        assert answer.status_code == 503
        error = answer.get_json()["error"]
        assert error["code"] == "model_failed"
        assert error["message"].startswith("The model 'bad' could not be loaded: bad.gguf: ")
        assert str(place) not in answer.text
    shutil.copy(folder / "one.gguf", place / "bad.gguf")
    assert text(client, "bad") == alone(folder / "one.gguf")


def test_metrics_count_models_that_are_gone(serve: Apps, folder: Path) -> None:
    app = serve(models_dir=folder, models_max=1, metrics=True)
    client = app.test_client()

    def steps() -> float:
        lines = client.get("/metrics").text.splitlines()
        return next(float(x.split()[1]) for x in lines if x.startswith("oxibonsai_steps_total "))

    text(client, "one")
    first = steps()
    text(client, "two")
    both = steps()
    assert both > first >= 1
    client.post("/models/unload", json={"model": "two"})
    assert steps() == both  # also while none is loaded


def test_one_model_answers_to_any_name(serve: Apps, folder: Path) -> None:
    client = serve(model=str(folder / "one.gguf")).test_client()
    answer = client.post("/v1/completions", json={**ASK, "model": "gpt-4"}).get_json()
    assert answer["model"] == "one"


def test_background_work_keeps_its_model(serve: Apps, folder: Path) -> None:
    app = serve(models_dir=folder, models_max=1)
    client = app.test_client()
    body = {
        "model": "one", "input": "a", "background": True, "max_output_tokens": 100,
        "ignore_eos": True,
    }  # fmt: skip
    made = client.post("/v1/responses", json=body).get_json()
    text(client, "two")
    ended = client.get(f"/v1/responses/{made['id']}").get_json()
    assert ended["status"] in ("completed", "incomplete")
    assert ended["usage"]["output_tokens"] == 100


@pytest.mark.slow
def test_a_server_that_changes_models_does_not_grow(folder: Path, tmp_path: Path) -> None:
    flags = ["--models-dir", str(folder), "--models-max", "1", "--parity", "off"]
    with real_server(folder / "one.gguf", tmp_path, *flags) as server:

        def resident_mib() -> int:
            pages = Path(f"/proc/{server.worker_pid()}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE") >> 20

        def use(name: str) -> None:
            body = json.dumps({**ASK, "model": name}).encode()
            headers = {"Content-Type": "application/json"}
            status, _, answer = server.ask("/v1/completions", "POST", body, **headers)
            assert (status, answer["model"]) == (200, name)

        for name in ("two", "one", "two"):
            use(name)
        before = resident_mib()
        for i in range(20):
            use(("one", "two")[i % 2])
        # A model that is left behind takes 2 MiB.
        assert resident_mib() - before < 20
