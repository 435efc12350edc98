"""Ollama's API, through its own Python client."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import free_port
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from running_server import wait_until
from web_files import take_for_public, web_server

import tiny_model
from oxibonsai.server.app import create_app
from oxibonsai.server.engine_backend import served_models
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.sources import download
from oxibonsai.sources.download import Patience

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
ollama = pytest.importorskip("ollama", reason="ollama is not installed")

HERE = Path(__file__).parent
SAID = [{"role": "user", "content": "Hi"}]
SHORT: dict[str, Any] = {"num_predict": 6, "temperature": 0}
INFILL = {"tokenizer.ggml.fim_pre_token_id": (258, "u32"),
          "tokenizer.ggml.fim_suf_token_id": (259, "u32"),
          "tokenizer.ggml.fim_mid_token_id": (260, "u32"),
          "tokenizer.ggml.fim_sep_token_id": (261, "u32")}  # fmt: skip


def through(app: Server, key: str | None = None) -> Any:
    """Ollama's client, without a socket in between."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.WSGITransport(app=app)
    return ollama.Client(host="http://localhost", transport=transport, headers=headers)


@pytest.fixture(scope="module")
def client(model_app: Server) -> Any:
    return through(model_app)


@pytest.fixture(scope="module")
def infill_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("infill")
    tiny_model.write(folder / "coder.gguf", changes=INFILL)
    app = make_model_app(folder / "coder.gguf", folder)
    yield app
    close_model_app(app)


def test_a_conversation_is_the_one_of_the_other_apis(
    client: Any, model_client: FlaskClient
) -> None:
    answer = client.chat("tiny", SAID, options=SHORT)
    body = {"messages": SAID, "max_tokens": 6, "temperature": 0}
    same = model_client.post("/v1/chat/completions", json=body).get_json()
    assert answer.message.content == same["choices"][0]["message"]["content"]
    assert answer.message.role == "assistant"
    assert (answer.model, answer.done, answer.done_reason) == ("tiny", True, "length")
    assert answer.prompt_eval_count == same["usage"]["prompt_tokens"]
    assert answer.eval_count == 6
    assert answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration > 0


def test_a_stream_has_the_same_text_in_pieces(client: Any) -> None:
    whole = client.chat("tiny", SAID, options=SHORT)
    pieces = list(client.chat("tiny", SAID, options=SHORT, stream=True))
    assert len(pieces) > 1
    assert "".join(p.message.content for p in pieces) == whole.message.content
    assert [p.done for p in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].eval_count == 6


def test_a_stream_is_lines_of_json(model_client: FlaskClient) -> None:
    body = {"model": "tiny:latest", "prompt": "Hi", "options": SHORT}
    with model_client.post("/api/generate", json=body) as answer:
        assert answer.mimetype == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.text.splitlines()]
    assert {line["model"] for line in lines} == {"tiny:latest"}
    assert lines[-1]["done_reason"] == "length"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", None])
def test_the_type_of_a_body_may_be_missing(model_client: FlaskClient, kind: str | None) -> None:
    body = json.dumps({"model": "tiny", "prompt": "Hi", "options": SHORT, "stream": False})
    bare = model_client.post("/api/generate", data=body, content_type=kind)
    assert bare.status_code == 200, bare.text
    assert bare.get_json()["done"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", None])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
        {"Referer": "http://evil.example/"},
        {"Origin": "http://localhost"},
    ],
)
def test_a_body_without_a_type_is_of_no_page(
    model_client: FlaskClient, headers: dict[str, str], kind: str | None
) -> None:
    for path in ("generate", "chat", "embed", "embeddings", "show", "pull"):
        answer = model_client.post(
            f"/api/{path}", data='{"model": "tiny"}', content_type=kind, headers=headers
        )
        assert answer.status_code in (403, 415), (path, answer.text)


def test_a_prompt_is_a_message_and_raw_text_is_none(client: Any, model_client: FlaskClient) -> None:
    plain = client.generate("tiny", "Hi", options=SHORT)
    assert plain.response == client.chat("tiny", SAID, options=SHORT).message.content
    raw = client.generate("tiny", "Hi", raw=True, options=SHORT)
    body = {"prompt": "Hi", "max_tokens": 6, "temperature": 0}
    same = model_client.post("/v1/completions", json=body).get_json()
    assert raw.response == same["choices"][0]["text"] != plain.response
    assert raw.context is None
    system = client.generate("tiny", "Hi", system="Be brief.", options=SHORT)
    messages = [{"role": "system", "content": "Be brief."}, *SAID]
    assert system.response == client.chat("tiny", messages, options=SHORT).message.content


def test_a_context_is_what_was_said_before(client: Any, model_app: Server) -> None:
    first = client.generate("tiny", "Hi", options=SHORT)
    tokenizer = model_app.submitter.engine.tokenizer
    second = client.generate("tiny", "More", context=first.context, options=SHORT)
    assert second.context[: len(first.context)] == first.context
    assert second.prompt_eval_count > len(first.context)
    assert "More" in b"".join(map(tokenizer.token_bytes, second.context)).decode("utf-8", "replace")


def test_formats_hold(client: Any) -> None:
    schema = {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}},
        "required": ["city"], "additionalProperties": False,
    }  # fmt: skip
    answer = client.chat("tiny", SAID, format=schema, options={"num_predict": 40})
    assert json.loads(answer.message.content)["city"] in ("Rome", "Paris")
    answer = client.generate("tiny", "Hi", format="json", options={"num_predict": 40, "seed": 3})
    assert answer.response.lstrip().startswith("{")


def test_log_probabilities_are_those_of_the_tokens(client: Any) -> None:
    answer = client.chat("tiny", SAID, options=SHORT, logprobs=True, top_logprobs=2)
    assert "".join(t.token for t in answer.logprobs) == answer.message.content
    assert all(t.logprob <= 0 and len(t.top_logprobs) == 2 for t in answer.logprobs)
    pieces = list(client.chat("tiny", SAID, options=SHORT, logprobs=True, stream=True))
    shown = [t.token for p in pieces for t in p.logprobs or []]
    assert shown == [t.token for t in answer.logprobs]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"temprature": 1}, "there is no such field"),
        ({"tfs_z": 0.5}, "not supported"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_options_that_can_not_be_are_refused(
    client: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ollama.ResponseError, match=problem) as error:
        client.chat("tiny", SAID, options=options)
    assert error.value.status_code == 400


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"suffix": "b", "system": "c"}, "leave out system"),
        ({"suffix": "b", "raw": True}, "leave out raw"),
        ({"raw": True, "context": [1]}, "leave out context"),
        ({"raw": True, "think": True}, "leave out think"),
        ({"context": [1], "images": ["AA=="]}, "context goes with texts alone"),
    ],
)
def test_fields_that_would_be_left_out_are_refused(
    client: Any, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ollama.ResponseError, match=problem) as error:
        client.generate("tiny", "a", **fields)
    assert error.value.status_code == 400


def test_options_of_loading_change_no_text(client: Any) -> None:
    more = {"num_thread": 2, "num_gpu": 1, "num_batch": 8, "num_ctx": 64, "tfs_z": 1.0}
    larger = {"num_ctx": 10**6}  # than the model's: it is cut
    texts = [client.generate("tiny", "Hi", options=SHORT | o).response for o in ({}, more, larger)]
    assert texts == [texts[0]] * 3


def test_tools_are_called_and_answered(tmp_path: Path, tiny_path: Path) -> None:
    """The model writes at random, so a forced start decides what it calls."""
    template = HERE / "calling_template.jinja"
    app = make_model_app(tiny_path, tmp_path, chat_template_file=template)
    try:
        tool = {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome"]}}},
            },
        }
        call = {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
        messages = [
            *SAID,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": "weather", "content": "Sunny."},
        ]
        client = through(app)
        assert client.chat("tiny", messages, tools=[tool], options=SHORT).done
        wrong = [*SAID, {"role": "tool", "tool_name": "other", "content": "x"}]
        with pytest.raises(ollama.ResponseError, match="there is no tool call"):
            client.chat("tiny", wrong, tools=[tool])
    finally:
        close_model_app(app)


def test_thoughts_come_apart(tmp_path: Path, tiny_path: Path) -> None:
    template = HERE / "thinking_template.jinja"
    app = make_model_app(tiny_path, tmp_path, chat_template_file=template)
    try:
        client = through(app)
        thinking = client.chat("tiny", SAID, think=True, options=SHORT)
        assert thinking.message.thinking
        silent = client.chat("tiny", SAID, think=False, options=SHORT)
        assert not silent.message.thinking
        pieces = list(client.chat("tiny", SAID, think=True, options=SHORT, stream=True))
        joined = "".join(p.message.thinking or "" for p in pieces)
        assert joined == thinking.message.thinking
    finally:
        close_model_app(app)


def test_a_gap_is_filled(infill_app: Server) -> None:
    client = through(infill_app)
    filled = client.generate("tiny", "ab", suffix="cd", options=SHORT)
    flask = infill_app.test_client()
    body = {"prompt": "ab", "suffix": "cd", "max_tokens": 6, "temperature": 0}
    same = flask.post("/v1/completions", json=body).get_json()
    assert filled.response == same["choices"][0]["text"]
    ids = infill_app.submitter.engine.tokenizer.encode("cd")
    # <prefix> ab <suffix> cd <middle>, after the name of a file.
    body = {"input_prefix": "ab", "input_suffix": "cd", "n_predict": 6, "temperature": 0}
    native = flask.post("/infill", json=body).get_json()
    assert native["content"] == filled.response
    assert native["prompt"] == "filler3filename\nfiller0abfiller1cdfiller2"
    prompt = same["usage"]["prompt_tokens"]
    assert prompt == native["tokens_evaluated"] == 1 + len("filename\n") + 1 + 1 + 1 + len(ids) + 1


def test_other_files_stand_before_the_gap(infill_app: Server) -> None:
    flask = infill_app.test_client()
    body = {"input_prefix": "ab", "input_suffix": "c", "prompt": "x", "n_predict": 1}
    extra = [{"filename": "a.py", "text": "one"}]
    alone = flask.post("/infill", json=body).get_json()
    more = flask.post("/infill", json={**body, "input_extra": extra}).get_json()
    assert more["prompt"].endswith(alone["prompt"])
    assert "a.py\none" in more["prompt"]


def test_a_model_without_gaps_says_so(client: Any, model_client: FlaskClient) -> None:
    with pytest.raises(ollama.ResponseError, match="fill-in-the-middle") as error:
        client.generate("tiny", "a", suffix="b")
    assert error.value.status_code == 400
    body = {"input_prefix": "a", "input_suffix": "b"}
    assert model_client.post("/infill", json=body).status_code == 400


def test_vectors(client: Any, model_client: FlaskClient) -> None:
    answer = client.embed("tiny", ["ab", "c"])
    same = model_client.post("/v1/embeddings", json={"input": ["ab", "c"]}).get_json()
    assert answer.embeddings == [d["embedding"] for d in same["data"]]
    assert answer.prompt_eval_count == 2
    assert len(client.embed("tiny", "ab", dimensions=4).embeddings[0]) == 4
    older = client.embeddings("tiny", "ab").embedding
    length = sum(x * x for x in older) ** 0.5
    assert [x / length for x in older] == pytest.approx(list(answer.embeddings[0]), abs=1e-5)
    assert len(client.embed("tiny", "x" * 2000).embeddings) == 1
    with pytest.raises(ollama.ResponseError, match="context"):
        client.embed("tiny", "x" * 2000, truncate=False)


def test_models_are_listed_and_shown(client: Any, tiny_path: Path) -> None:
    (model,) = client.list().models
    assert model.model == "tiny"
    assert model.size == tiny_path.stat().st_size
    assert model.details.family == "qwen3"
    assert model.details.quantization_level == "Q1_0"
    (loaded,) = client.ps().models
    assert (loaded.model, loaded.size_vram, loaded.context_length) == ("tiny", 0, 512)
    assert loaded.digest == model.digest
    shown = client.show("tiny")
    assert shown.modelinfo["general.architecture"] == "qwen3"
    assert shown.capabilities == ["completion"]
    assert "temperature 1.0" in shown.parameters
    assert "tokenizer.ggml.tokens" not in shown.modelinfo


def test_odd_files_in_the_folder_keep_nobody_from_the_others(
    tmp_path: Path, tiny_path: Path
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    odd: dict[str, dict[str, Any]] = {
        "adapter": {"general.type": ("adapter", "str")},
        "nothing": {"general.architecture": None},
        "numbers": {"general.architecture": (7, "u32"), "general.type": ([1], "arr[u32]")},
        "template": {"tokenizer.chat_template": ("{% if %}{{", "str")},
        "long": {"tokenizer.chat_template": ("{{ 1 }}" * 10_000, "str")},
        "nan": {
            "general.score": (math.nan, "f32"),
            "general.scores": ([math.inf, 1.5], "arr[f32]"),
        },
    }
    for name, changes in odd.items():
        tiny_model.write(folder / f"{name}.gguf", changes=changes)
    (folder / "short.gguf").write_bytes(b"nineteen bytes text")
    (folder / "tiny.gguf").write_bytes(tiny_path.read_bytes())
    with Models(tmp_path / "state", models_dir=folder) as app:
        flask = app.test_client()
        assert flask.get("/api/ps").status_code == 200
        answer = flask.get("/api/tags")
        assert answer.status_code == 200
        families = {m["name"]: m["details"]["family"] for m in answer.get_json()["models"]}
        known = ("tiny", "template", "long", "nan")
        unknown = ("adapter", "nothing", "numbers", "short")
        assert families == dict.fromkeys(known, "qwen3") | dict.fromkeys(unknown, "")
        for name in unknown:
            assert flask.post("/api/show", json={"model": name}).status_code == 503
        for name in known:
            shown = flask.post("/api/show", json={"model": name, "verbose": True})
            assert shown.status_code == 200
            assert shown.get_json()["capabilities"] == ["completion"]
        info = shown.get_json()["model_info"]
        assert (info["general.score"], info["general.scores"]) == (None, [None, 1.5])
        assert "NaN" not in shown.text
        assert "Infinity" not in shown.text


def test_a_template_that_is_no_jinja_is_the_clients_to_know(tmp_path: Path) -> None:
    """The model reads plain prompts all the same."""
    path = tmp_path / "odd.gguf"
    tiny_model.write(path, changes={"tokenizer.chat_template": ("{% if %}{{", "str")})
    app = make_model_app(path, tmp_path)
    try:
        flask = app.test_client()
        bodies: dict[str, dict[str, Any]] = {
            "/v1/chat/completions": {"messages": SAID},
            "/v1/responses": {"input": "a"},
            "/v1/messages": {"system": "b", "messages": SAID, "max_tokens": 1},
            "/apply-template": {"messages": SAID},
            "/api/chat": {"messages": SAID},
        }
        for route, body in bodies.items():
            answer = flask.post(route, json={**body, "model": "tiny"})
            assert answer.status_code == 400, route
            assert "the chat template is no valid Jinja" in answer.text, route
        assert flask.post("/api/show", json={"model": "tiny"}).status_code == 200
        assert flask.get("/props").get_json()["chat_template"] == "{% if %}{{"
        assert flask.post("/completion", json={"prompt": "a", "n_predict": 1}).status_code == 200
    finally:
        close_model_app(app)


def test_errors_have_ollamas_form(model_client: FlaskClient) -> None:
    for path, body in (("/api/chat", {"model": "tiny", "colour": 1}), ("/api/none", {})):
        answer = model_client.post(path, json=body)
        assert answer.status_code in (400, 404)
        assert list(answer.get_json()) == ["error"]
        assert isinstance(answer.get_json()["error"], str)


def test_a_picture_is_for_models_that_see(client: Any) -> None:
    said = [{"role": "user", "content": "What is it?", "images": ["aGVsbG8="]}]
    with pytest.raises(ollama.ResponseError, match="image"):
        client.chat("tiny", said)


class Models:
    """An application on several models."""

    def __init__(self, state: Path, **values: Any) -> None:
        given = {"state_dir": state, "threads": 1, "parity": "off", **values}
        settings = load_settings(given)
        models = served_models(settings, Lifecycle())
        models.load()
        self.app = create_app(settings, models)
        self.app.lifecycle.advance(Phase.READY)

    def __enter__(self) -> Server:
        return self.app

    def __exit__(self, *_: object) -> None:
        self.app.models.close()
        self.app.store.close()


def test_models_stay_as_long_as_a_request_says(tmp_path: Path, tiny_path: Path) -> None:
    with Models(tmp_path, models=(f"one={tiny_path}",)) as app:
        client = through(app)
        assert client.ps().models == []
        assert client.generate("one").done_reason == "load"
        assert [m.model for m in client.ps().models] == ["one"]
        assert client.generate("one", keep_alive=0).done_reason == "unload"
        assert client.ps().models == []
        client.chat("one:latest", SAID, keep_alive="10m", options=SHORT)
        assert app.models.default.keep_seconds == 600
        client.chat("one", SAID, keep_alive=-1, options=SHORT)
        assert app.models.default.keep_seconds == -1
        for forever in (1e300, "inf", "99999999h"):
            client.chat("one", SAID, keep_alive=forever, options=SHORT)
            assert [m.model for m in client.ps().models] == ["one"]
        client.chat("one", SAID, keep_alive="100ms", options=SHORT)
        wait_until(lambda: client.ps().models == [])
        with pytest.raises(ollama.ResponseError, match="5m or 1h30m"):
            client.chat("one", SAID, keep_alive="soon")
        with pytest.raises(ollama.ResponseError, match="5m or 1h30m"):
            client.chat("one", SAID, keep_alive="nan")
        with pytest.raises(ollama.ResponseError, match="does not exist") as error:
            client.chat("two", SAID)
        assert error.value.status_code == 404


def test_how_long_a_model_stays_is_for_admins_to_change(tmp_path: Path, tiny_path: Path) -> None:
    keys = {"api_key": ["key"], "admin_key": ["root"]}
    with Models(tmp_path, models=(f"one={tiny_path}",), **keys) as app:
        client, admin = through(app, "key"), through(app, "root")
        assert client.generate("one").done_reason == "load"
        for keep in (0, "10m", -1.5):
            with pytest.raises(ollama.ResponseError, match="--admin-key-file") as refused:
                client.generate("one", keep_alive=keep)
            assert refused.value.status_code == 403
        client.chat("one", SAID, keep_alive=-1, options=SHORT)  # which it does anyway
        admin.chat("one", SAID, keep_alive="10m", options=SHORT)
        assert app.models.default.keep_seconds == 600
        client.chat("one", SAID, keep_alive=600, options=SHORT)
        with pytest.raises(ollama.ResponseError, match="--admin-key-file"):
            client.embed("one", "Hi", keep_alive=0)
        assert [m.model for m in client.ps().models] == ["one"]
        assert admin.generate("one", keep_alive=0).done_reason == "unload"
        assert client.ps().models == []


def test_models_are_pulled_from_a_hub(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tiny_path.read_bytes()
    take_for_public(monkeypatch)
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    with Models(tmp_path / "closed", models=(f"one={tiny_path}",)) as app:
        with pytest.raises(ollama.ResponseError, match="--allow-pull") as error:
            through(app).pull("hf.co/org/repo")
        assert error.value.status_code == 403
    with web_server(content) as address, Models(tmp_path / "open", allow_pull=True) as app:
        client = through(app)
        with pytest.raises(ollama.ResponseError, match="no library"):
            client.pull("llama3")
        with pytest.raises(ollama.ResponseError) as error:  # before the stream begins
            list(client.pull("llama3", stream=True))
        assert error.value.status_code == 404
        name = f"{address}/tiny.gguf"
        statuses = list(client.pull(name, stream=True))
        assert statuses[0].status == "pulling manifest"
        assert statuses[-1].status == "success"
        assert any(s.completed == s.total == len(content) for s in statuses)
        assert client.chat(name, SAID, options=SHORT).done
        assert [m.model for m in client.list().models] == [name]
        with pytest.raises(ollama.ResponseError) as error:
            client.pull(f"{address}/none.gguf")
        assert error.value.status_code == 404
    with Models(tmp_path / "open", allow_pull=True) as app:
        assert [m.model for m in through(app).list().models] == [name]


def refusal(client: Any, name: str) -> str:
    """What a pull is refused with, without the name."""
    with pytest.raises(ollama.ResponseError) as error:
        client.pull(name)
    assert error.value.status_code == 404
    return str(error.value.error).replace(name, "NAME")


def test_a_pull_reaches_public_hosts_only_and_tells_nothing_of_others(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "Patience", lambda: Patience(tries=1, timeout=5))
    with web_server(tiny_path.read_bytes()) as address, Models(tmp_path, allow_pull=True) as app:
        client = through(app)
        there, lacking = f"{address}/tiny.gguf", f"{address}/none.gguf"
        nobody = f"http://127.0.0.1:{free_port()}/tiny.gguf"
        named = "http://localhost:1/tiny.gguf"
        private = {refusal(client, name) for name in (there, lacking, nobody, named)}
        assert client.list().models == []
        # A public host that refuses, or a port of it that does, reads as an address within does.
        take_for_public(monkeypatch)
        with web_server(b"", leads_to="http://127.0.0.2:1/tiny.gguf") as outside:
            leads = f"{outside}/leads.gguf"
            public = {refusal(client, name) for name in (lacking, nobody, leads)}
    assert len(private | public) == 1
    assert "public hosts only" in private.pop()
    logged = [r.getMessage() for r in caplog.records if "download of" in r.getMessage()]
    assert "127.0.0.1 is no public host" in logged[0]
    assert "status 404" in logged[4]
    assert "127.0.0.2 is no public host" in logged[6]


def test_what_is_pulled_is_opened_before_it_is_listed(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_for_public(monkeypatch)
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    tiny_model.write(tmp_path / "adapter.gguf", changes={"general.type": ("adapter", "str")})
    tiny_model.write(tmp_path / "odd.gguf", changes={"general.architecture": ("odd", "str")})
    cut = tiny_path.read_bytes()[:-100]
    content: dict[str, bytes] = {"adapter": (tmp_path / "adapter.gguf").read_bytes(), "cut": cut}
    content |= {"odd": (tmp_path / "odd.gguf").read_bytes(), "short": b"nineteen bytes text"}
    with Models(tmp_path, allow_pull=True) as app:
        client = through(app)
        for kind, file in content.items():
            with (
                web_server(file, f"{kind}.gguf") as address,
                pytest.raises(ollama.ResponseError, match="can't be served") as error,
            ):
                client.pull(f"{address}/{kind}.gguf")
            assert error.value.status_code == 400
            assert f"{kind}.gguf" in error.value.error
            assert str(tmp_path) not in error.value.error
            assert client.list().models == []
        kept = {path.name for path in (tmp_path / "cache").rglob("*.gguf")}
        assert kept == {"adapter.gguf", "odd.gguf"}  # files of the format, which others may use


def test_what_is_pulled_from_an_address_stays_that_file(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address may lead to another host later."""
    take_for_public(monkeypatch)
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    with web_server(tiny_path.read_bytes()) as address, Models(tmp_path, allow_pull=True) as app:
        name = f"{address}/tiny.gguf"
        assert through(app).pull(name).status == "success"
        assert app.models.find(name).spec.path is not None
        for path in (tmp_path / "cache").rglob("*.gguf"):
            path.unlink()
        with pytest.raises(ollama.ResponseError, match="could not be loaded"):
            through(app).chat(name, SAID, options=SHORT)
