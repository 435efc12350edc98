"""Settings that suit the model hold in every interface, until a request or a flag says otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import oxibonsai
import tiny_model
from oxibonsai.chat import ChatRequest, prepare
from oxibonsai.cli.main import _group
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.hf import AutoModelForCausalLM
from oxibonsai.known_models import ModelFamily, families
from oxibonsai.llm import LLM
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.app import create_app
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.submitter import Submitter

FAMILY = ModelFamily(
    name="Tiny 2",
    pattern="tiny-2",
    architecture="qwen3",
    sizes=frozenset({(tiny_model.LAYERS, tiny_model.HIDDEN)}),
    thinking={"temperature": 0.9, "top_k": 17, "min_p": 0.0},
    plain={"temperature": 0.6, "top_k": 13, "min_p": 0.0, "presence_penalty": 1.25},
    efforts=("low", "xhigh"),
    effort_for={"high": "xhigh", "max": "xhigh"},
)
# Of Qwen3.8's manner: another effort is refused; thinking is on unless switched off.
TEMPLATE = """
{%- if reasoning_effort is defined and reasoning_effort not in ['low', 'xhigh'] -%}
{{ raise_exception('no such effort: ' ~ reasoning_effort) }}{%- endif -%}
{%- if reasoning_effort is defined %}{{ 'effort ' ~ reasoning_effort ~ ' ' }}{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }} {{ message.content }}<|im_end|>{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% else %}<think>
{% endif %}{% endif -%}
"""
ASK = [{"role": "user", "content": "hi"}]
# Fields that the family or the file decide: temperature by the file (for the model's own mode) or the
# family, top_p by neither, min_p and the penalty by the family.
THINKING = {"temperature": 0.8, "top_k": 17, "min_p": 0.0, "presence_penalty": 0.0}
PLAIN = {"temperature": 0.6, "top_k": 13, "min_p": 0.0, "presence_penalty": 1.25}


def chosen(params: SamplingParams) -> dict[str, float]:
    return {name: getattr(params, name) for name in THINKING}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("models") / "Tiny-2-Q1_0.gguf"
    stated = {"general.sampling.temp": (0.8, "f32"), "tokenizer.chat_template": (TEMPLATE, "str")}
    tiny_model.write(found, changes=stated)
    return found


@pytest.fixture(autouse=True)
def tiny_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FAMILIES", (FAMILY,))


@pytest.fixture(scope="module")
def engine(path: Path) -> Engine:
    return oxibonsai.load(path, threads=1, parity="off")


@pytest.fixture
def make_app(path: Path, tmp_path: Path) -> Iterator[Any]:
    made: list[Server] = []

    def make(**values: Any) -> Server:
        given = {"model": str(path), "alias": "tiny", "threads": 1, "parity": "off"}
        settings = load_settings({"state_dir": tmp_path, **given, **values})
        backend = EngineBackend(settings)
        backend.load()
        made.append(create_app(settings, backend))
        made[-1].lifecycle.advance(Phase.READY)
        return made[-1]

    yield make
    for app in made:
        app.backend.close()
        app.store.close()


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[SamplingParams]:
    """What the server's requests are sampled with."""
    found: list[SamplingParams] = []
    submit = Submitter._submit

    def watched(self: Submitter, ids: Any, params: SamplingParams, *others: Any) -> Any:
        found.append(params)
        return submit(self, ids, params, *others)

    monkeypatch.setattr(Submitter, "_submit", watched)
    return found


OPENAI = {"model": "tiny", "messages": ASK, "max_tokens": 1}
REQUESTS = {
    "completion": ("/completion", {"prompt": "a", "n_predict": 1}, THINKING),
    "completions": ("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1}, THINKING),
    "chat": ("/v1/chat/completions", OPENAI, THINKING),
    "chat, no effort": ("/v1/chat/completions", {**OPENAI, "reasoning_effort": "none"}, PLAIN),
    "chat, high": ("/v1/chat/completions", {**OPENAI, "reasoning_effort": "high"}, THINKING),
    "chat, not thinking": (
        "/v1/chat/completions",
        {**OPENAI, "chat_template_kwargs": {"enable_thinking": False}},
        PLAIN,
    ),
    "responses": ("/v1/responses", {"model": "tiny", "input": "a"}, THINKING),
    "responses, no effort": (
        "/v1/responses", {"model": "tiny", "input": "a", "reasoning": {"effort": "none"}}, PLAIN,
    ),
    "messages": ("/v1/messages", OPENAI, THINKING),
    "messages, not thinking": ("/v1/messages", {**OPENAI, "thinking": {"type": "disabled"}}, PLAIN),
    "ollama chat": ("/api/chat", {"model": "tiny", "messages": ASK, "stream": False}, THINKING),
    "ollama chat, not thinking": (
        "/api/chat", {"model": "tiny", "messages": ASK, "stream": False, "think": False}, PLAIN,
    ),
    "ollama generate": (
        "/api/generate", {"model": "tiny", "prompt": "a", "stream": False, "think": False}, PLAIN,
    ),
    "a request's own": (
        "/v1/chat/completions", {**OPENAI, "temperature": 0.3}, {**THINKING, "temperature": 0.3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_every_api_samples_as_recommended(
    name: str, make_app: Any, submitted: list[SamplingParams]
) -> None:
    url, body, expected = REQUESTS[name]
    answer = make_app(n_predict=2).test_client().post(url, json=body)
    assert answer.status_code == 200, answer.text
    assert [chosen(params) for params in submitted] == [expected]


def test_a_flag_of_the_server_goes_before_the_model(
    make_app: Any, submitted: list[SamplingParams]
) -> None:
    client = make_app(temperature="0.4", presence_penalty="0.5").test_client()
    for url, body, expected in (REQUESTS["chat"], REQUESTS["chat, not thinking"]):
        assert client.post(url, json=body).status_code == 200
        flags = {"temperature": 0.4, "presence_penalty": 0.5}
        assert chosen(submitted[-1]) == {**expected, **flags}


def test_props_and_ollamas_show_tell_them(make_app: Any) -> None:
    client = make_app().test_client()
    told = client.get("/props").get_json()["default_generation_settings"]["params"]
    assert {name: told[name] for name in THINKING} == pytest.approx(THINKING)
    shown = client.post("/api/show", json={"model": "tiny"}).get_json()["parameters"]
    assert shown.splitlines() == ["temperature 0.8", "top_k 17", "top_p 0.95", "min_p 0.0"]


def test_python_samples_as_recommended(engine: Engine, path: Path) -> None:
    assert chosen(LLM(engine).get_default_sampling_params()) == THINKING
    short = oxibonsai.Options()
    for thinks, expected in ((None, THINKING), (False, PLAIN)):
        reply = engine.chat(ASK, options=short, enable_thinking=thinks)  # type: ignore[attr-defined]
        assert chosen(reply.sequence.params) == expected
        engine.cancel(reply.sequence)
    assert AutoModelForCausalLM.from_pretrained(path, parity="off").config.generation.items() >= {
        ("do_sample", True), ("temperature", 0.8), ("top_k", 17), ("min_p", 0.0),
    }  # fmt: skip


def test_llm_samples_as_recommended(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    submit = Engine.submit

    def watched(self: Engine, ids: Any, params: SamplingParams, *others: Any, **more: Any) -> Any:
        found.append(chosen(params))
        return submit(self, ids, oxibonsai.SamplingParams(max_tokens=1), *others, **more)

    monkeypatch.setattr(Engine, "submit", watched)
    llm = LLM(engine)
    llm.generate("a")
    llm.chat(ASK)
    llm.chat(ASK, enable_thinking=False)
    assert found == [THINKING, THINKING, PLAIN]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "hi"], THINKING),
        (["run", "hi", "--no-think"], PLAIN),
        (["run", "hi", "--reasoning-effort", "none"], PLAIN),
        (["run", "hi", "--reasoning-effort", "max"], THINKING),
        (["run", "hi", "--raw"], THINKING),
        (["run", "hi", "--temp", "0.2"], {**THINKING, "temperature": 0.2}),
        (["chat"], THINKING),
        (["chat", "--no-think"], PLAIN),
    ],
)
def test_commands_sample_as_recommended(
    arguments: list[str],
    expected: dict[str, float],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    submit = Engine.submit

    def watched(self: Engine, ids: Any, params: SamplingParams, *others: Any, **more: Any) -> Any:
        found.append(chosen(params))
        return submit(self, ids, params, *others, **more)

    monkeypatch.setattr(Engine, "submit", watched)
    options = ["-m", str(path), "-n", "1", "--threads", "1", "--parity", "off"]
    done = CliRunner().invoke(
        _group(), [*arguments, *options], input="hi\n", catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert found == [expected]


def test_an_effort_reaches_the_template_in_its_own_words(engine: Engine) -> None:
    def prompt(**fields: Any) -> str:
        return prepare(engine, ChatRequest(ASK, **fields)).prompt

    assert prompt(reasoning_effort="high").startswith("effort xhigh ")
    assert prompt(template_options={"reasoning_effort": "high"}).startswith("effort xhigh ")
    off = prompt(reasoning_effort="minimal")
    assert off.startswith("<|im_start|>")
    assert off.endswith("</think>\n\n")


def test_without_a_family_the_template_is_asked_as_it_is(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "FAMILIES", ())
    engine.__dict__.pop("recommended", None)
    try:
        with pytest.raises(RequestError, match="no such effort: high"):
            prepare(engine, ChatRequest(ASK, reasoning_effort="high"))
    finally:
        engine.__dict__.pop("recommended", None)


def test_json_of_a_run_is_not_changed_by_the_preset_alone(path: Path) -> None:
    """A preset is a whole set: nothing of the model's is mixed into it."""
    options = ["-m", str(path), "-n", "2", "--threads", "1", "--parity", "off", "--json"]
    texts = [
        json.loads(CliRunner().invoke(_group(), ["run", "hi", *options, *more]).output)["tokens"]
        for more in (["--preset", "greedy"], ["--temp", "0", "--presence-penalty", "0"])
    ]
    assert texts[0] == texts[1]
