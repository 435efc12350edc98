"""Order, neutral values, masks, randomness and state of the whole chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chain_results import OFF, left_by
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai import RequestError, SamplingParams, _core
from oxibonsai.sampling import PRESETS, preset
from oxibonsai.sampling.checks import STEP_NAMES
from oxibonsai.sampling.sampler import Sampler, breaker_ids, token_logprobs
from oxibonsai.sampling.steps import CHAIN, active_steps

LOGITS = np.log(np.float32([0.5, 0.1, 0.3, 0.1]))
PLAIN = SamplingParams(**OFF, seed=42)

ACTIVE: dict[str, dict[str, Any]] = {
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    "dry": {"dry_multiplier": 0.8},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.05},
    "typ_p": {"typical_p": 0.8},
    "top_a": {"top_a": 0.5},
    "eta": {"eta_cutoff": 0.2},
    "epsilon": {"epsilon_cutoff": 0.2},
    "temperature": {"temperature": 0.6, "dynatemp_range": 0.2},
    "top_k": {"top_k": 3},
    "min_p": {"min_p": 0.3},
    "top_p": {"top_p": 0.7},
}
logits = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=200)


def draws(params: SamplingParams, values: Any = LOGITS, n: int = 40) -> list[int]:
    sampler = Sampler(params)
    history = [0, 1, 0, 1]
    return [sampler.choose(np.float32(values), history, 2 + t) for t in range(n)]


def test_the_order_is_the_documented_one() -> None:
    assert tuple(ACTIVE) == STEP_NAMES
    everything = SamplingParams(**{k: v for fields in ACTIVE.values() for k, v in fields.items()})
    assert [step.name for step in active_steps(everything)] == list(ACTIVE)


@given(logits)
def test_neutral_values_give_the_bytes_of_absence(values: list[float]) -> None:
    """Each step applied with its neutral value leaves every probability as it is."""
    c = _core.Candidates()
    c.start(np.float32(values))
    plain = c.probabilities()
    none = np.array([], dtype=np.int32)
    history = [0, 1, 0, 1]
    c.penalise_repetition(history, 1.0)
    c.penalise_presence(history, 0.0, 0.0)
    c.penalise_dry(history, 0.0, 1.75, 2, none)
    c.keep_top_a(0.0)
    c.keep_eta(0.0)
    c.keep_epsilon(0.0)
    c.divide(1.0)
    c.keep_top_k(len(values))
    c.keep_min_p(0.0)
    assert c.ids() == list(range(len(values)))
    assert c.probabilities() == plain


@given(logits, st.sampled_from(sorted(ACTIVE)))
def test_a_step_is_absent_at_its_neutral_value_and_when_it_is_not_named(
    values: list[float], name: str
) -> None:
    others = tuple(n for n in STEP_NAMES if n != name)
    off = SamplingParams(**OFF, seed=1)
    left_out = SamplingParams(**{**OFF, **ACTIVE[name], "samplers": others, "seed": 1})
    assert not active_steps(off)
    assert draws(left_out, values) == draws(off, values)


@given(logits, st.permutations(STEP_NAMES), st.integers(0, 2))
def test_every_order_leaves_a_token(values: list[float], order: list[str], mirostat: int) -> None:
    fields = {k: v for step in ACTIVE.values() for k, v in step.items()}
    params = SamplingParams(**fields, samplers=tuple(order), seed=3, mirostat=mirostat)
    assert all(0 <= token < len(values) for token in draws(params, values, 5))


@pytest.mark.parametrize("step", CHAIN, ids=lambda step: step.name)
def test_every_step_changes_something_when_it_is_on(step: Any) -> None:
    params = SamplingParams(**{**OFF, **ACTIVE[step.name]})
    assert [s.name for s in active_steps(params)] == [step.name]
    history = [0, 1, 2, 0, 1]
    assert left_by(params, LOGITS, history, 2) != left_by(PLAIN, LOGITS, history, 2)


def test_the_order_can_be_chosen() -> None:
    # Of four tokens, top_p 0.75 keeps 0 and 2; at T 4 it needs a third, if the heat comes first.
    fields = {**OFF, "temperature": 4.0, "top_p": 0.75}
    late = SamplingParams(**fields, samplers=("top_p", "temperature"))
    early = SamplingParams(**fields, samplers=("temperature", "top_p"))
    assert sorted(left_by(late, LOGITS)) == [0, 2]
    assert sorted(left_by(early, LOGITS)) == [0, 1, 2]


def test_unknown_steps_are_refused() -> None:
    with pytest.raises(RequestError, match="samplers names 'top_q'"):
        SamplingParams(samplers=("top_k", "top_q"))


def test_greedy_takes_the_first_maximum_in_any_order() -> None:
    for fields in ({}, {"repetition_penalty": 1.1}, {"samplers": ()}, {"mirostat": 2}):
        sampler = Sampler(SamplingParams(temperature=0.0, **fields))
        assert sampler.choose(np.float32([1, 3, 3, 0]), [], 0) == 1
    tiny = Sampler(SamplingParams(temperature=1e-30, top_k=0, top_p=1))
    assert tiny.choose(np.float32([1, 3, 3, 0]), [], 0) == 1


def test_biases_and_banned_tokens() -> None:
    biased = Sampler(SamplingParams(temperature=0, logit_bias={3: 100.0}))
    assert biased.choose(LOGITS, [], 0) == 3
    banned = Sampler(SamplingParams(temperature=0, banned_tokens=(0,)))
    assert banned.choose(LOGITS, [], 0) == 2
    assert Sampler(PRESETS["greedy"]).choose(LOGITS, [], 0, banned={0, 2}) == 1
    assert LOGITS[3] == np.log(np.float32(0.1))


@pytest.mark.parametrize("params", [PRESETS["greedy"], PLAIN, PRESETS["creative"]])
def test_only_tokens_of_the_mask_are_chosen(params: SamplingParams) -> None:
    values = np.linspace(0, 1, 100, dtype=np.float32)
    allowed = {3, 31, 32, 64}
    mask = np.zeros(3, dtype=np.uint32)  # 96 tokens: those past it are not allowed
    for token in allowed:
        mask[token // 32] |= np.uint32(1 << (token % 32))
    sampler = Sampler(params)
    chosen = {sampler.choose(values, [], t, mask=mask) for t in range(300)}
    assert chosen <= allowed
    assert chosen == allowed or params.greedy
    chosen = {sampler.choose(values, [], t, mask=mask, banned=[64]) for t in range(300)}
    assert chosen <= allowed - {64}


def test_only_allowed_tokens_are_chosen_and_the_mask_of_a_grammar_holds_too() -> None:
    values = np.linspace(0, 1, 100, dtype=np.float32)
    for temperature in (0.0, 5.0):
        params = SamplingParams(temperature=temperature, allowed_tokens=(3, 31, 64))
        sampler = Sampler(params)
        chosen = {sampler.choose(values, [], t) for t in range(200)}
        assert chosen == ({64} if params.greedy else {3, 31, 64})
        mask = np.array([1 << 31, 1], dtype=np.uint32)  # 31 and 32
        assert {sampler.choose(values, [], t, mask=mask) for t in range(20)} == {31}


def test_the_last_token_of_a_bad_word_is_banned_behind_the_others() -> None:
    sampler = Sampler(SamplingParams(temperature=0), bad_words=[(0,), (3, 1, 2)])
    assert sampler.choose(LOGITS, [], 0) == 2
    assert sampler.choose(LOGITS, [9, 3, 1], 3) == 1
    assert sampler.choose(LOGITS, np.int32([9, 3, 1]), 3) == 1  # type: ignore[arg-type]
    # What the prompt says is no part of the text, and other tokens may come between.
    assert sampler.choose(LOGITS, [9, 3, 1], 1) == 2
    assert sampler.choose(LOGITS, [3, 9, 1], 3) == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_no_token_is_left_the_error_says_so(temperature: float) -> None:
    sampler = Sampler(SamplingParams(temperature=temperature))
    with pytest.raises(RequestError, match="no token is left"):
        sampler.choose(LOGITS, [], 0, mask=np.zeros(1, dtype=np.uint32))
    with pytest.raises(RequestError, match="no token is left"):
        sampler.choose(np.float32([np.nan, -np.inf]), [], 0)


def test_tokens_outside_the_vocabulary_are_refused_and_leave_nothing_behind() -> None:
    for fields in ({"logit_bias": {9: 1.0}}, {"banned_tokens": (9,)}):
        with pytest.raises(RequestError, match="token 9 is outside the vocabulary of 4"):
            Sampler(SamplingParams(**fields)).choose(LOGITS, [], 0)
    fields = {"repetition_penalty": 1.5, "dry_multiplier": 1.0}
    for name in fields:
        sampler = Sampler(SamplingParams(**{**OFF, name: fields[name], "seed": 1}))
        before = [sampler.choose(LOGITS, [0, 1, 0, 1, 0], t) for t in range(20)]
        with pytest.raises(RequestError, match="token 9 is outside"):
            sampler.choose(LOGITS, [0, 0, 1, 9, 0, 0], 0)
        assert before == [sampler.choose(LOGITS, [0, 1, 0, 1, 0], t) for t in range(20)]


def chi_square(params: SamplingParams, values: np.ndarray, n: int = 100_000) -> tuple[float, int]:
    """Of n draws through choose(), against the exact distribution; and its degrees of freedom."""
    exact = left_by(params, values)
    sampler = Sampler(params)
    counts = np.bincount([sampler.choose(values, [], t) for t in range(n)], minlength=len(values))
    assert set(np.flatnonzero(counts)) == set(exact)
    expected = np.array([n * exact.get(i, 0.0) for i in range(len(values))])
    live = expected > 0
    return float(((counts - expected)[live] ** 2 / expected[live]).sum()), int(live.sum()) - 1


@pytest.mark.parametrize(
    ("fields", "kept"), [({}, 100), ({"top_p": 0.8}, None), ({"min_p": 0.1}, None)], ids=str
)
def test_100k_draws_follow_the_distribution(fields: dict[str, float], kept: int | None) -> None:
    values = np.random.default_rng(5).normal(0, 1, 100).astype(np.float32)
    params = SamplingParams(**{**OFF, **fields, "seed": 42})
    statistic, freedom = chi_square(params, values)
    assert freedom > 10
    assert kept is None or freedom == kept - 1
    # 99.9 % of a chi-square distribution, by Wilson and Hilferty; the seed is fixed.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < limit


def test_draws_of_a_large_vocabulary_are_spread_over_all_of_it() -> None:
    values = np.zeros(10_000, dtype=np.float32)
    sampler = Sampler(PLAIN)
    counts = np.bincount([sampler.choose(values, [], t) // 1000 for t in range(20_000)])
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.9  # 99.9 % of 9 degrees of freedom


def test_the_chance_of_xtc_is_unrelated_to_the_draw() -> None:
    u = np.array([_core.uniform(7, t) for t in range(5000)])
    v = np.array([_core.uniform(7, t | 1 << 63) for t in range(5000)])
    assert abs(np.corrcoef(u, v)[0, 1]) < 0.05
    sampler = Sampler(SamplingParams(temperature=0, xtc_probability=0.3, xtc_threshold=0.2, seed=7))
    dropped = [sampler.choose(LOGITS, [], t) == 2 for t in range(5000)]
    assert dropped == (v < 0.3).tolist()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 3.0])
def test_mirostat_holds_the_average_surprisal(version: int, tau: float) -> None:
    random = np.random.default_rng(0)
    sampler = Sampler(SamplingParams(temperature=1, mirostat=version, mirostat_tau=tau, seed=11))
    surprisals = []
    for t in range(1500):
        values = (-1.1 * np.log(np.arange(1, 501)) + random.normal(0, 0.2, 500)).astype(np.float32)
        before = sampler.state()["mirostat_mu"]
        sampler.choose(values, [], t)
        surprisals.append(tau + (before - sampler.state()["mirostat_mu"]) / 0.1)
    assert abs(np.mean(surprisals[100:]) - tau) < 0.1


def test_a_restored_sampler_goes_on_with_the_same_tokens() -> None:
    values = np.random.default_rng(2).normal(0, 2, 50).astype(np.float32)
    first = Sampler(SamplingParams(mirostat=2, mirostat_tau=3.0, temperature=1))
    for t in range(20):
        first.choose(values, [], t)
    second = Sampler(first.params)
    second.restore(first.state())
    assert [first.choose(values, [], t) for t in range(20, 40)] == [
        second.choose(values, [], t) for t in range(20, 40)
    ]


def test_a_large_vocabulary_gives_what_a_plain_definition_gives() -> None:
    """Selection by blocks and thresholds against sorting all of it."""
    random = np.random.default_rng(8)
    for scale in (0.01, 1.0, 4.0):
        values = random.normal(0, scale, 30_001).astype(np.float32)
        values[random.integers(0, 30_001, 9000)] = values[7]  # ties
        order = np.lexsort((np.arange(len(values)), -values))
        for k in (1, 40, 500, 20_000):
            left = left_by(SamplingParams(**{**OFF, "top_k": k}), values)
            assert sorted(left) == sorted(order[:k].tolist())
            assert _core.top_k(values, k).tolist() == order[:k].tolist()
        weights = np.exp(values.astype(np.float64) - values.max())
        for mass in (0.1, 0.9):
            left = left_by(SamplingParams(**{**OFF, "top_p": mass}), values)
            count = np.searchsorted(np.cumsum(weights[order]), mass * weights.sum()) + 1
            assert abs(len(left) - count) <= 1  # their sums are rounded differently
            assert sorted(left) == sorted(order[: len(left)].tolist())


def test_logprobs_are_of_the_models_own_distribution() -> None:
    values = np.random.default_rng(1).normal(0, 3, 1000).astype(np.float32)
    exact = values - np.log(np.exp(values.astype(np.float64)).sum())
    report = token_logprobs(values, 17, 5)
    best = np.argsort(-exact, kind="stable")[:5]
    assert report.token == 17
    assert report.logprob == pytest.approx(exact[17], abs=1e-6)
    assert [token for token, _ in report.top] == best.tolist()
    assert [p for _, p in report.top] == pytest.approx(exact[best].tolist(), abs=1e-6)
    assert token_logprobs(values, 17).top == ()
    with pytest.raises(RequestError, match="token 1000 is outside"):
        token_logprobs(values, 1000)


def test_breakers_are_the_tokens_that_contain_a_string() -> None:
    assert breaker_ids(["a", ":", "b:\n", "*", ""], [":", "*"]) == {1, 2, 3}


def test_presets() -> None:
    assert preset("code").top_k == 10
    with pytest.raises(RequestError, match="preset is 'wild'; it must be one of greedy"):
        preset("wild")
