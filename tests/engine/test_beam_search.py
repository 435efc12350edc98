"""Beam search: what transformers finds with the same weights, and the greedy text at width 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import RequestError, SamplingParams
from oxibonsai.engine import Beam, Engine, beam_search

IDS = [int(i) for i in np.random.default_rng(4).integers(0, 256, 90)]


@pytest.fixture
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def test_one_beam_is_the_greedy_text(engine: Engine) -> None:
    greedy = list(engine.generate_tokens(IDS, SamplingParams(temperature=0, max_tokens=30)))
    (beam,) = beam_search(engine, IDS, width=1, max_new_tokens=30)
    assert beam.tokens == greedy


def test_a_score_is_the_sum_of_the_models_log_probabilities(engine: Engine) -> None:
    beams = beam_search(engine, IDS, width=3, max_new_tokens=8, length_penalty=0.7)
    assert [b.score for b in beams] == sorted((b.score for b in beams), reverse=True)
    for beam in beams:
        logits = engine.logits([*IDS, *beam.tokens])[len(IDS) - 1 : -1].astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        total = sum(logprobs[i, t] for i, t in enumerate(beam.tokens))
        assert beam.score == pytest.approx(total / len(beam.tokens) ** 0.7, rel=1e-5)


def test_all_beams_of_a_short_search_are_the_best_of_all_texts(engine: Engine) -> None:
    """Two tokens over 300 ids: few enough to look at every text."""
    width = 20
    beams = beam_search(engine, IDS[:3], width=width, max_new_tokens=1, length_penalty=0.0)
    logits = engine.logits(IDS[:3])[-1].astype(np.float64)
    assert [b.tokens for b in beams] == [[int(t)] for t in np.argsort(-logits, kind="stable")[:20]]


def test_pages_are_given_back_and_other_sequences_may_step_between(engine: Engine) -> None:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    alone = list(engine.generate_tokens(IDS, params))
    beside = engine.submit(IDS, params)
    for _ in range(3):
        engine.step()
    expected = beam_search(oxibonsai.load(engine.model.weights.checkpoint.path), IDS, width=4)
    assert beam_search(engine, IDS, width=4) == expected
    while not beside.finished:
        engine.step()
    assert beside.generated == alone
    assert engine.cache.used_bytes == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"width": 65}, "from 1 to 64"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"early_stopping": "soon"}, "early_stopping is 'soon'"),
        ({"width": 2, "n": 3}, "n is 3; it must be from 1 to the width, 2"),
    ],
)
def test_arguments_out_of_range_are_named(engine: Engine, arguments: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        beam_search(engine, IDS, **arguments)


def test_a_beam_knows_why_it_ended(engine: Engine) -> None:
    beams = beam_search(engine, IDS, width=2, max_new_tokens=3)
    assert all(isinstance(b, Beam) and b.finish_reason in ("stop", "length") for b in beams)
