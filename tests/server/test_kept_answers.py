"""Streamed answers with ``background``: they go on without their client, which can join them again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sse_reader import events

from oxibonsai.server.errors import ApiError
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai import kept_answers
from oxibonsai.server.openai.kept_answers import KeptAnswers

URL = "/v1/chat/completions"


def asked(client: FlaskClient, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 1}
    return client.post(URL, json={**body, "stream": True, "background": True, **fields})


def wait(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


def text_of(chunks: list[Any]) -> str:
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])


def test_an_answer_is_the_same_as_without_background(model_client: FlaskClient) -> None:
    kept, plain = (events(asked(model_client, background=b)) for b in (True, False))
    assert text_of(kept) == text_of(plain) != ""


def test_an_answer_goes_on_without_its_client_and_is_joined_from_its_start(
    model_client: FlaskClient,
) -> None:
    answer = asked(model_client, max_tokens=40, ignore_eos=True)
    first = json.loads(next(answer.response).decode().removeprefix("data: "))
    answer.close()  # the client leaves after the first event
    joined = events(model_client.get(f"{URL}/{first['id']}/stream"))
    assert joined[0]["choices"] == first["choices"]
    assert joined[-1]["choices"][0]["finish_reason"] == "length"
    assert joined[-1]["timings"]["predicted_n"] == 40
    assert events(model_client.get(f"{URL}/{first['id']}/stream")) == joined


def test_a_cancelled_answer_ends_and_is_forgotten(model_client: FlaskClient) -> None:
    answer = asked(model_client, max_tokens=100_000, ignore_eos=True)
    first = json.loads(next(answer.response).decode().removeprefix("data: "))
    cancelled = model_client.post(f"{URL}/{first['id']}/cancel").get_json()
    assert cancelled == {"id": first["id"], "object": "chat.completion", "cancelled": True}
    assert b'finish_reason":"' not in answer.get_data()
    lifecycle = model_client.application.lifecycle  # type: ignore[attr-defined]
    wait(lambda: lifecycle.background == 0)
    gone = model_client.get(f"{URL}/{first['id']}/stream")
    assert (gone.status_code, gone.get_json()["error"]["code"]) == (404, "answer_not_found")


@pytest.mark.parametrize("path", ["stream", "cancel"])
def test_an_answer_without_background_can_not_be_joined(
    model_client: FlaskClient, path: str
) -> None:
    (first, *_) = events(asked(model_client, background=False))
    method = {"stream": model_client.get, "cancel": model_client.post}[path]
    assert method(f"{URL}/{first['id']}/{path}").status_code == 404


def test_background_needs_a_stream(model_client: FlaskClient) -> None:
    answer = asked(model_client, stream=False)
    assert answer.status_code == 400
    assert answer.get_json()["error"]["message"] == "background requires stream: true"


@pytest.fixture
def answers() -> Iterator[KeptAnswers]:
    app = Flask("answers")
    with app.test_request_context():
        yield KeptAnswers(Lifecycle())


def keep(answers: KeptAnswers, key: tuple[str, str], frames: Iterator[str | None]) -> str:
    closed: list[bool] = []
    response = answers.begin(key, frames, close=lambda: closed.append(True), lease=nullcontext())
    text = response.get_data(as_text=True)
    wait(lambda: closed)
    return text


def test_another_owner_finds_no_answer(answers: KeptAnswers) -> None:
    keep(answers, ("a", "1"), iter(["x"]))
    assert answers.follow(("a", "1")).get_data() == b"x"
    for forbidden in (answers.follow, answers.cancel):
        with pytest.raises(ApiError, match="no answer '1'"):
            forbidden(("b", "1"))


def test_an_error_is_the_last_event(answers: KeptAnswers) -> None:
    def frames() -> Iterator[str]:
        yield "x"
        raise ApiError(503, "no pages")

    text = keep(answers, ("a", "1"), frames())
    assert text.startswith("xevent: error\ndata: ")
    assert "no pages" in text


def test_an_answer_is_forgotten_an_hour_after_its_end(
    answers: KeptAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(answers, ("a", "1"), iter(["x"]))
    monkeypatch.setattr(kept_answers, "_KEPT_SECONDS", -1.0)
    with pytest.raises(ApiError):
        answers.follow(("a", "1"))


def test_where_there_are_too_many_the_key_that_has_most_loses_its_oldest(
    answers: KeptAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "_MOST_BYTES", 10)
    for key in (("a", "1"), ("b", "2"), ("b", "3"), ("b", "4")):
        keep(answers, key, iter(["xxxx"]))
    assert answers.follow(("a", "1")).get_data() == b"xxxx"
    for lost in ("2", "3"):
        with pytest.raises(ApiError):
            answers.follow(("b", lost))
    assert answers.follow(("b", "4")).get_data() == b"xxxx"
