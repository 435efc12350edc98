"""Requests on the engines: order, counts, cancellation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_app import close_model_app, make_model_app

from oxibonsai.chat import ChatRequest
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.errors import ApiError
from oxibonsai.server.server import Server
from oxibonsai.server.submitter import Submitter

PARAMS = SamplingParams(max_tokens=12, seed=3, ignore_eos=True)


@pytest.fixture
def app(tiny_path: Path, tmp_path: Path) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path, parallel=1, queue_size=1)
    yield made
    close_model_app(made)


@pytest.fixture
def submitter(app: Server) -> Submitter:
    return app.submitter


def test_the_pieces_of_each_choice_make_its_text(submitter: Submitter) -> None:
    request = ChatRequest([{"role": "user", "content": "hello"}])
    with submitter.chat(request, PARAMS, n=3) as answers:
        texts = ["", "", ""]
        ends = []
        for index, delta in answers.stream():
            if delta is not None:
                texts[index] += delta.content
            elif index >= 0:
                ends.append(index)
        assert sorted(ends) == [0, 1, 2]
        assert [c.reply.content for c in answers.choices] == texts
        assert [c.sequence.text for c in answers.choices] == texts
        assert [c.finish_reason for c in answers.choices] == ["length"] * 3
        assert answers.completion_tokens == 36
        assert answers.prompt_tokens > 5


def test_a_request_waits_its_turn_and_a_full_queue_refuses(submitter: Submitter) -> None:
    first = submitter.text([1, 2, 3], PARAMS)
    second = submitter.text([1, 2, 3], PARAMS)
    with pytest.raises(CapacityError, match="try again later"):
        submitter.text([1, 2, 3], PARAMS)
    assert second.choices == []
    first.close()
    with second:
        second.wait({})
        assert second.choices[0].sequence.num_generated == 12


def test_what_is_wrong_is_said_although_the_request_would_wait(submitter: Submitter) -> None:
    with submitter.text([1, 2, 3], PARAMS):
        with pytest.raises(RequestError, match="outside the vocabulary"):
            submitter.text([100_000], PARAMS)
        with submitter.text([1, 2, 3], PARAMS):  # the refused one left its place
            pass


def test_leaving_ends_the_sequence(submitter: Submitter) -> None:
    engine = submitter.engine
    with submitter.text([1, 2, 3], SamplingParams(ignore_eos=True)) as answers:
        next(answers.stream())
    deadline = time.monotonic() + 60
    while engine.num_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.num_running == 0
    assert submitter.pool.running == 0


def test_a_prompt_as_long_as_the_context_is_refused(submitter: Submitter) -> None:
    with pytest.raises(ApiError) as e:
        submitter.text([5] * 512, PARAMS)
    assert e.value.kind == "exceed_context_size_error"
    assert e.value.extra == {"n_prompt_tokens": 512, "n_ctx": 512}
