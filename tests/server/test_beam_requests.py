"""Beam search in requests: the texts of ``engine.beam_search``, and what it does not go with."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from oxibonsai.engine import beam_search
from oxibonsai.server.server import Server

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": "ab", "max_tokens": 8, "use_beam_search": True},
    CHAT: {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "use_beam_search": True,
    },
}


def ask(client: FlaskClient, path: str, **fields: Any) -> dict[str, Any]:
    answer = client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.get_json()
    return found


def refused(client: FlaskClient, path: str, **fields: Any) -> tuple[str, str]:
    answer = client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 400, answer.text
    error = answer.get_json()["error"]
    return error["message"], error["param"]


@pytest.mark.parametrize(
    ("fields", "search"),
    [
        ({"n": 3}, {"width": 3}),
        ({"n": 2, "best_of": 5}, {"width": 5, "n": 2}),
        ({"n": 4, "length_penalty": -2.0}, {"width": 4, "length_penalty": -2.0}),
        ({"n": 4, "early_stopping": True}, {"width": 4, "early_stopping": True}),
        ({"n": 3, "temperature": 0, "top_p": 1, "top_k": -1, "seed": 5}, {"width": 3}),
        ({"n": 2, "ignore_eos": True}, {"width": 2, "stop_token_ids": []}),
        ({"n": 3, "max_tokens": -1}, {"width": 3, "max_new_tokens": 510}),
    ],
)
def test_completions_are_the_texts_of_the_engines_search(
    model_app: Server, model_client: FlaskClient, fields: dict[str, Any], search: dict[str, Any]
) -> None:
    engine = model_app.submitter.engine
    ids = engine.tokenizer.encode("ab")
    if "max_new_tokens" in search:
        search = {**search, "max_new_tokens": engine.ctx_size - len(ids)}
    expected = beam_search(engine, ids, **{"max_new_tokens": 8, **search})
    found = ask(model_client, TEXT, **fields)
    assert [(c["index"], c["text"], c["finish_reason"]) for c in found["choices"]] == [
        (i, b.text, b.finish_reason) for i, b in enumerate(expected)
    ]
    assert found["usage"]["prompt_tokens"] == len(ids)
    assert found["usage"]["completion_tokens"] == sum(len(b.tokens) for b in expected)


def test_a_token_of_the_request_ends_a_text(model_app: Server, model_client: FlaskClient) -> None:
    engine = model_app.submitter.engine
    ids = engine.tokenizer.encode("ab")
    (plain,) = beam_search(engine, ids, width=1, max_new_tokens=8)
    end = plain.tokens[3]
    expected = beam_search(
        engine, ids, width=2, max_new_tokens=8, stop_token_ids=[*engine.eos_ids, end]
    )
    found = ask(model_client, TEXT, n=2, stop_token_ids=[end])
    assert [c["text"] for c in found["choices"]] == [b.text for b in expected]
    assert "stop" in {c["finish_reason"] for c in found["choices"]}


def test_the_length_penalty_orders_texts_of_several_lengths(
    model_app: Server, model_client: FlaskClient
) -> None:
    engine = model_app.submitter.engine
    ids = engine.tokenizer.encode("ab")
    (plain,) = beam_search(engine, ids, width=1, max_new_tokens=8)
    end = plain.tokens[3]
    found, expected = [], []
    for penalty in (-4.0, 4.0):
        beams = beam_search(
            engine, ids, width=6, max_new_tokens=8, length_penalty=penalty,
            stop_token_ids=[*engine.eos_ids, end],
        )  # fmt: skip
        expected.append([b.text for b in beams])
        choices = ask(model_client, TEXT, n=6, length_penalty=penalty, stop_token_ids=[end])
        found.append([c["text"] for c in choices["choices"]])
    assert found == expected
    assert expected[0] != expected[1]


def test_early_stopping_decides_when_a_search_ends(
    model_app: Server, model_client: FlaskClient
) -> None:
    engine = model_app.submitter.engine
    ids = engine.tokenizer.encode("ab")
    (plain,) = beam_search(engine, ids, width=1, max_new_tokens=8)
    end = plain.tokens[2]
    found, expected = [], []
    for early in (True, "never"):
        beams = beam_search(
            engine, ids, width=3, max_new_tokens=16, early_stopping=early,  # type: ignore[arg-type]
            stop_token_ids=[*engine.eos_ids, end],
        )  # fmt: skip
        expected.append([b.text for b in beams])
        choices = ask(
            model_client, TEXT, n=3, max_tokens=16, early_stopping=early, stop_token_ids=[end]
        )
        found.append([c["text"] for c in choices["choices"]])
    assert found == expected
    assert expected[0] != expected[1]


def test_several_prompts_are_searched_one_after_the_other(model_client: FlaskClient) -> None:
    alone = [ask(model_client, TEXT, prompt=p, n=2)["choices"] for p in ("ab", "c")]
    both = ask(model_client, TEXT, prompt=["ab", "c"], n=2)["choices"]
    assert [c["index"] for c in both] == [0, 1, 2, 3]
    assert [c["text"] for c in both] == [c["text"] for cs in alone for c in cs]


def test_a_chat_searches_from_its_prompt(model_app: Server, model_client: FlaskClient) -> None:
    engine = model_app.submitter.engine
    prompt = model_client.post("/apply-template", json={"messages": BODIES[CHAT]["messages"]})
    ids = engine.tokenizer.encode(prompt.get_json()["prompt"], parse_special=True)
    expected = beam_search(engine, ids, width=4, n=2, max_new_tokens=8)
    found = ask(model_client, CHAT, n=2, best_of=4)
    assert [c["message"]["content"] for c in found["choices"]] == [b.text for b in expected]
    assert found["object"] == "chat.completion"
    assert found["usage"]["prompt_tokens"] == len(ids)


def test_samples_go_on_beside_a_search(model_client: FlaskClient) -> None:
    sample = {"prompt": "ab", "max_tokens": 8, "seed": 1}
    before = model_client.post(TEXT, json=sample).get_json()["choices"]
    ask(model_client, TEXT, n=8)
    assert model_client.post(TEXT, json=sample).get_json()["choices"] == before


@pytest.mark.parametrize("path", [TEXT, CHAT])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_k": 3}, "top_k"),
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"stop": ["x"]}, "stop"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 65}, "best_of"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_does_not_go_with_beams_is_refused_by_name(
    model_client: FlaskClient, path: str, fields: dict[str, Any], param: str
) -> None:
    if path == TEXT and "logprobs" in fields:
        fields = {"logprobs": 2}
    message, named = refused(model_client, path, **fields)
    assert named == param
    assert message.count(". ") == 0


def test_completions_refuse_what_reads_the_prompt_again(model_client: FlaskClient) -> None:
    for name, value in {"echo": True, "prompt_logprobs": 1, "suffix": "x"}.items():
        assert refused(model_client, TEXT, **{name: value})[1] == name


def test_a_chat_refuses_tools_and_its_samples_have_no_best(model_client: FlaskClient) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert refused(model_client, CHAT, tools=[tool])[1] == "tools"
    assert refused(model_client, CHAT, use_beam_search=False, best_of=2)[1] == "best_of"


@pytest.mark.parametrize("path", [TEXT, CHAT])
@pytest.mark.parametrize("fields", [{"length_penalty": 0.5}, {"early_stopping": True}])
def test_fields_of_beams_need_beams(
    model_client: FlaskClient, path: str, fields: dict[str, Any]
) -> None:
    message, named = refused(model_client, path, use_beam_search=False, **fields)
    assert named in fields
    assert "use_beam_search" in message
