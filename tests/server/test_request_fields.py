"""No field of a request is taken and ignored, but for those that change no answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from pydantic import BaseModel

import oxibonsai
from oxibonsai.sampling import PRESETS
from oxibonsai.sampling.sampler import token_logprobs
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.openai.schemas.chat import ChatBody
from oxibonsai.server.openai.schemas.completion import CompletionBody, EmbeddingBody
from oxibonsai.server.openai.schemas.files import ImageFields
from oxibonsai.server.schemas.known import EveryRequest, Ignored, NoEffect, TextRequest
from oxibonsai.server.server import Server

HELLO = [{"role": "user", "content": "hello"}]
CHAT, TEXT, VECTOR = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "max_tokens": 4, "seed": 1},
    TEXT: {"prompt": "hello", "max_tokens": 4, "seed": 1},
    VECTOR: {"input": "hello"},
}
MODELS: dict[str, type[BaseModel]] = {CHAT: ChatBody, TEXT: CompletionBody, VECTOR: EmbeddingBody}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "request_fields.md"


def ask(client: FlaskClient, path: str, **fields: Any) -> Any:
    answer = client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def refused(client: FlaskClient, path: str, **fields: Any) -> str:
    """The message of a 400 that names the field."""
    answer = client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 400, answer.text
    error = answer.get_json()["error"]
    assert error["param"] == next(iter(fields))
    return str(error["message"])


@pytest.mark.parametrize("path", BODIES)
def test_a_field_that_nobody_knows_is_refused(model_client: FlaskClient, path: str) -> None:
    assert refused(model_client, path, colour="red") == "colour: there is no such field."
    assert refused(model_client, path, colour=None) == "colour: there is no such field."
    assert "did you mean model?" in refused(model_client, path, modell="tiny")


def test_a_misspelt_field_is_told_the_one_that_was_meant(model_client: FlaskClient) -> None:
    for wrong, meant in (("max_tokenz", "max_tokens"), ("temprature", "temperature")):
        said = refused(model_client, CHAT, **{wrong: 1})
        assert said == f"{wrong}: there is no such field; did you mean {meant}?"


def test_a_field_may_be_sent_under_both_of_its_names(model_client: FlaskClient) -> None:
    one = texts(model_client, repeat_penalty=1.5)
    assert texts(model_client, repeat_penalty=1.5, repetition_penalty=1.5) == one
    assert texts(model_client, repeat_penalty=None, repetition_penalty=1.5) == one
    both = {"repeat_penalty": 1.5, "repetition_penalty": 1.2}
    answer = model_client.post(TEXT, json={**BODIES[TEXT], **both})
    assert answer.status_code == 400
    assert "repeat_penalty and repetition_penalty mean the same" in answer.text
    ask(model_client, TEXT, typ_p=0.5, typical_p=0.5)


UNSUPPORTED: dict[str, dict[str, Any]] = {
    CHAT: {
        "kv_type": "q8_0", "modalities": ["text", "audio"],
        "audio": {"voice": "ash", "format": "wav"}, "web_search_options": {},
        "prompt_logprobs": 1, "truncate_prompt_tokens": 5,
        "documents": [{"text": "a"}], "chat_template": "{{ messages }}", "echo": True,
        "skip_special_tokens": False, "return_token_ids": True, "functions": [{"name": "f"}],
        "function_call": "auto", "n_probs": 3,
    },
    TEXT: {
        "kv_type": "q8_0",
        "add_special_tokens": False, "logits_processors": ["x"],
        "include_stop_str_in_output": True,
    },
    VECTOR: {"lora": [{"id": 0}], "kv_type": "f16", "input_type": "query"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "field"), [(path, field) for path, fields in UNSUPPORTED.items() for field in fields]
)
def test_what_there_is_not_is_refused_by_name(
    model_client: FlaskClient, path: str, field: str
) -> None:
    message = refused(model_client, path, **{field: UNSUPPORTED[path][field]})
    assert message.startswith(f"{field} is not supported: ")
    ask(model_client, path, **{field: None})


@pytest.mark.parametrize("field", ["kv_type", "use_beam_search", "logits_processors"])
def test_responses_refuse_what_there_is_not_too(model_client: FlaskClient, field: str) -> None:
    body = {"input": "hi", "max_output_tokens": 2, "store": False}
    value = {"use_beam_search": True, **UNSUPPORTED[TEXT]}[field]
    answer = model_client.post("/v1/responses", json={**body, field: value})
    assert answer.status_code == 400
    assert answer.get_json()["error"]["message"].startswith(f"{field} is not supported: ")


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_field_of_vectors_is_none_of_texts(model_client: FlaskClient, path: str) -> None:
    assert refused(model_client, path, pooling="mean") == "pooling: there is no such field."


def test_values_that_ask_for_nothing_are_taken(model_client: FlaskClient) -> None:
    plain = ask(model_client, CHAT)["choices"][0]["message"]["content"]
    neutral = {
        "modalities": ["text"], "lora": [], "use_beam_search": False, "best_of": 1,
        "length_penalty": 1.0, "skip_special_tokens": True, "verbosity": "medium", "echo": False,
    }  # fmt: skip
    assert ask(model_client, CHAT, **neutral)["choices"][0]["message"]["content"] == plain


def harmless(model: type[BaseModel]) -> set[str]:
    described = NoEffect.__metadata__[0].description
    return {n for n, f in model.model_fields.items() if f.description == described}


@pytest.mark.parametrize("path", BODIES)
def test_what_changes_no_answer_is_taken_whatever_it_says(
    model_client: FlaskClient, path: str
) -> None:
    names = harmless(MODELS[path])
    assert {"user"} <= names
    plain = ask(model_client, path)
    for value in ("x", 1, True, {"a": "b"}, [1], None):
        answer = ask(model_client, path, **dict.fromkeys(names, value))
        key = "data" if path == VECTOR else "choices"
        assert answer[key] == plain[key]


IGNORED: dict[str, Any] = {"verbosity": "high", "moderation": "auto", "keep_alive": "5m"}


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("field", IGNORED)
def test_what_has_no_effect_is_told_in_a_header(
    model_client: FlaskClient, path: str, field: str
) -> None:
    answer = model_client.post(path, json={**BODIES[path], field: IGNORED[field]})
    assert answer.status_code == 200
    (warning,) = answer.headers.getlist("X-OxiBonsai-Warning")
    assert warning.startswith(f"{field} has no effect: ")
    assert answer.get_json()["choices"] == ask(model_client, path)["choices"]
    assert "X-OxiBonsai-Warning" not in model_client.post(path, json=BODIES[path]).headers


def test_what_has_no_effect_is_documented() -> None:
    (listed,) = re.findall(r"warns of them:\n\n(.*?)\n\n", DOCS.read_text(), re.DOTALL)
    warned = {
        name
        for model in (TextRequest, ImageFields)
        for name, field in model.model_fields.items()
        if any(isinstance(note, Ignored) for note in field.metadata)
    }
    assert set(re.findall(r"`(\w+)`", listed)) == warned >= IGNORED.keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": False},
        {"thinking": False},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"effort": "none"}},
    ],
    ids=str,
)
def test_thinking_is_turned_off_under_each_name(fields: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "a"}]
    asked = ChatBody.model_validate({"messages": messages, **fields})
    assert asked.chat_request(ModelSettings()).thinks is False
    plain = ChatBody.model_validate({"messages": messages})
    assert plain.chat_request(ModelSettings()).thinks is None


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 9}},
        {"reasoning": {"max_tokens": 9}},
        {"reasoning_budget": 9},
        {"thinking_budget_tokens": 9},
    ],
    ids=str,
)
def test_a_budget_of_reasoning_is_taken_under_each_name(fields: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], **fields}
    assert ChatBody.model_validate(body).chat_request(ModelSettings()).thinking_budget == 9


def test_a_budget_for_a_model_that_does_not_reason_is_a_warning(model_client: FlaskClient) -> None:
    answer = model_client.post(CHAT, json={**BODIES[CHAT], "reasoning_budget": 0})
    assert answer.status_code == 200
    assert "budget of reasoning has no effect" in answer.headers["X-OxiBonsai-Warning"]


@pytest.mark.parametrize(
    ("path", "words"),
    [("/v1/audio/speech", "neither hears nor speaks"), ("/v1/moderations", "moderates nothing")],
)
def test_parts_of_the_api_that_are_not_here_say_so(
    model_client: FlaskClient, path: str, words: str
) -> None:
    answer = model_client.post(path, json={"input": "a"})
    assert answer.status_code == 404
    assert words in answer.get_json()["error"]["message"]


@pytest.mark.parametrize("kind", ["web_search", "file_search", "code_interpreter"])
def test_hosted_tools_are_refused_by_name(model_client: FlaskClient, kind: str) -> None:
    tools = [{"type": kind}]
    for path, body in (
        (CHAT, {"messages": [{"role": "user", "content": "a"}], "tools": tools}),
        ("/v1/responses", {"input": "a", "tools": tools}),
    ):
        answer = model_client.post(path, json=body)
        assert answer.status_code == 400
        message = answer.get_json()["error"]["message"]
        assert kind in message
        assert "runs no tools itself" in message


def test_what_changes_no_answer_is_documented() -> None:
    page = DOCS.read_text()
    (listed,) = re.findall(r"have no effect:\n\n(.*?)\n\n", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == harmless(TextRequest) | harmless(EveryRequest)


def texts(client: FlaskClient, **fields: Any) -> str:
    body = {"prompt": "once", "max_tokens": 40, "temperature": 1.0, "ignore_eos": True, "seed": 5}
    answer = client.post(TEXT, json={**body, **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.get_json()["choices"][0]["text"])


def test_no_bad_word_is_written(model_client: FlaskClient) -> None:
    plain = texts(model_client)
    letters = [c for c in plain if c.isascii() and c.isalnum()]
    words = [letters[0], "".join(re.findall(r"[!-~]{2}", plain)[:1])]
    left = texts(model_client, bad_words=words)
    assert not any(word in left for word in words if word)
    assert left != plain


def test_only_allowed_tokens_are_written(model_client: FlaskClient, model_app: Server) -> None:
    tokenizer = model_app.submitter.engine.tokenizer
    ids = [i for letter in "abc" for i in tokenizer.encode(letter, add_special=False)]
    assert set(texts(model_client, allowed_token_ids=ids)) <= set("abc")
    assert "allowed_token_ids" in refused(model_client, TEXT, allowed_token_ids=[])
    answer = model_client.post(TEXT, json={**BODIES[TEXT], "allowed_token_ids": [10**6]})
    assert answer.status_code == 400
    assert "outside the vocabulary" in answer.text


def test_a_preset_gives_the_defaults_and_fields_change_single_ones(
    model_client: FlaskClient,
) -> None:
    def settings(**fields: Any) -> dict[str, Any]:
        body = {"prompt": "a", "n_predict": 1, **fields}
        found: dict[str, Any] = model_client.post("/completion", json=body).get_json()
        return found["generation_settings"]

    preset = PRESETS["conversational"]
    found = settings(preset="conversational", top_k=7)
    assert found["top_k"] == 7
    assert found["temperature"] == preset.temperature
    assert found["repeat_penalty"] == preset.repetition_penalty
    assert found["min_p"] == preset.min_p
    assert texts(model_client, preset="greedy", temperature=None) == texts(
        model_client, temperature=0
    )
    answer = model_client.post(CHAT, json={**BODIES[CHAT], "preset": "wild"})
    assert answer.status_code == 400
    assert "preset is 'wild'; it must be one of" in answer.get_json()["error"]["message"]


def test_log_probabilities_of_a_prompt_are_those_of_the_model(
    model_client: FlaskClient, model_app: Server
) -> None:
    engine = model_app.submitter.engine
    ids = engine.tokenizer.encode("hello world")
    answer = ask(model_client, TEXT, prompt=ids, prompt_logprobs=2, n=2)
    first, *rest = answer["choices"][0]["prompt_logprobs"]
    assert first is None
    assert len(rest) == len(ids) - 1
    assert answer["choices"][1]["prompt_logprobs"] == [None, *rest]
    rows = engine.logits(ids)
    for token, row, found in zip(ids[1:], rows, rest, strict=False):
        own = found[str(token)]
        assert own["logprob"] == pytest.approx(token_logprobs(row, token).logprob)
        assert own["rank"] == 1 + np.count_nonzero(row > row[token])
        best = int(np.argmax(row))
        assert found[str(best)]["rank"] == 1
        assert 2 <= len(found) <= 3
    assert ask(model_client, TEXT, max_tokens=0, prompt_logprobs=0)["choices"][0]["text"] == ""
    streamed = model_client.post(TEXT, json={**BODIES[TEXT], "prompt_logprobs": 1, "stream": True})
    assert streamed.status_code == 400


def test_the_end_of_a_prompt_that_is_too_long_is_read(
    model_client: FlaskClient, model_app: Server
) -> None:
    size = model_app.submitter.engine.ctx_size
    ids = [5 + i % 50 for i in range(size + 40)]
    asked = {"temperature": 0, "prompt": ids}
    assert model_client.post(TEXT, json={**BODIES[TEXT], **asked}).status_code == 400
    for given, kept in ((10, 10), (-1, size - 4)):
        cut = ask(model_client, TEXT, **asked, truncate_prompt_tokens=given)
        assert cut["usage"]["prompt_tokens"] == kept
        alone = ask(model_client, TEXT, temperature=0, prompt=ids[-kept:])
        assert cut["choices"][0]["text"] == alone["choices"][0]["text"]
    short = ask(model_client, TEXT, truncate_prompt_tokens=1000)
    assert short["usage"] == ask(model_client, TEXT)["usage"]
    answer = model_client.post(TEXT, json={**BODIES[TEXT], "truncate_prompt_tokens": 0})
    assert answer.status_code == 400


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> oxibonsai.Engine:
    return oxibonsai.load(tiny_path)


@pytest.fixture(scope="module")
def vectors(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    app = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), embedding=True)
    yield app.test_client()
    close_model_app(app)


@pytest.mark.parametrize("pooling", ["mean", "last", "max", "cls"])
def test_a_request_for_vectors_says_how_they_are_made(
    vectors: FlaskClient, engine: oxibonsai.Engine, pooling: str
) -> None:
    ids = [5, 6, 7, 8, 9]
    found = ask(vectors, VECTOR, input=ids, pooling=pooling, normalize=False)
    wanted = engine.embed([ids], pooling=pooling, normalize=False)
    assert np.array_equal(np.float32(found["data"][0]["embedding"]), wanted[0])
    cut = ask(vectors, VECTOR, input=ids, pooling=pooling, truncate_prompt_tokens=3)
    assert cut["usage"]["prompt_tokens"] == 3
    wanted = engine.embed([ids[:3]], pooling=pooling)
    assert np.array_equal(np.float32(cut["data"][0]["embedding"]), wanted[0])


def test_wrong_ways_to_make_vectors_are_refused(vectors: FlaskClient) -> None:
    assert "pooling" in refused(vectors, VECTOR, pooling="none")
    assert vectors.post(VECTOR, json={"input": "a", "truncate_prompt_tokens": 0}).status_code == 400
    long = ask(vectors, VECTOR, input=[5] * 5000, truncate_prompt_tokens=-1)
    assert long["usage"]["prompt_tokens"] < 5000
