"""Figures from samples, against plain definitions and the standard library."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.loadtest.client import Sample
from oxibonsai.loadtest.statistics import Objectives, spread, summarize

times = st.floats(1e-4, 1e3)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    arrivals = sorted(draw(st.lists(times, max_size=8)))
    return Sample(
        sent=draw(st.floats(0, 1e4)),
        arrivals=tuple(arrivals),
        duration=(arrivals[-1] if arrivals else 0) + draw(times),
        output_tokens=draw(st.integers(len(arrivals), 20)),
        counted_by_server=draw(st.booleans()),
        prompt_tokens=draw(st.none() | st.integers(1, 100)),
        error=draw(st.none() | st.sampled_from(["HTTP 503", "cut"])),
    )


@given(st.lists(times, min_size=2))
def test_percentiles_interpolate_like_the_standard_library(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    cuts = statistics.quantiles([v * 1e3 for v in values], n=100, method="inclusive")
    got = (found.p50, found.p90, found.p99, found.mean, found.max)
    mean = statistics.fmean(values) * 1e3
    assert got == pytest.approx((cuts[49], cuts[89], cuts[98], mean, max(values) * 1e3))


def test_nothing_has_no_spread_and_one_value_is_all_of_it() -> None:
    assert spread([]) is None
    one = spread([0.25])
    assert one is not None
    assert {one.mean, one.p50, one.p90, one.p99, one.max} == {250.0}


@given(st.lists(samples(), min_size=1, max_size=12), st.none() | times, st.none() | times)
def test_figures_follow_their_definitions(
    taken: list[Sample], ttft: float | None, tpot: float | None
) -> None:
    figures = summarize(taken, Objectives(ttft, tpot))
    whole = [s for s in taken if s.error is None]
    ends = np.array([s.sent + s.duration for s in taken])
    wall = ends.max() - np.array([s.sent for s in taken]).min()
    assert figures.wall_s == pytest.approx(wall)
    assert figures.requests == len(whole) + sum(figures.errors.values())
    assert figures.requests_per_s == pytest.approx(len(whole) / wall)
    assert figures.output_tokens_per_s == pytest.approx(sum(s.output_tokens for s in whole) / wall)

    timed = [s for s in whole if s.arrivals]
    for field, values in {
        "ttft_ms": [s.arrivals[0] for s in timed],
        "itl_ms": np.concatenate([np.diff(s.arrivals) for s in timed] or [np.empty(0)]),
        "tpot_ms": [
            (s.duration - s.arrivals[0]) / (s.output_tokens - 1)
            for s in timed
            if s.output_tokens > 1
        ],
        "e2e_ms": [s.duration for s in whole],
    }.items():
        found = getattr(figures, field)
        assert (found is None) == (len(values) == 0)
        if found is not None:
            assert found.p99 == pytest.approx(np.percentile(values, 99) * 1e3, abs=1e-9)
            assert found.mean == pytest.approx(np.mean(values) * 1e3, abs=1e-9)

    if ttft is None and tpot is None:
        assert figures.goodput_per_s is None
    else:
        good = [
            s
            for s in timed
            if (ttft is None or s.arrivals[0] <= ttft)
            and (tpot is None or s.tpot is None or s.tpot <= tpot)
        ]
        assert figures.goodput_per_s == pytest.approx(len(good) / wall)


def test_a_request_that_meets_one_objective_of_two_is_not_good() -> None:
    sample = Sample(0, (0.1, 0.2, 0.5), 0.5, 3, True)  # TTFT 0.1 s, TPOT 0.2 s
    assert Objectives(0.1, 0.2).met_by(sample)
    assert not Objectives(0.09, 0.2).met_by(sample)
    assert not Objectives(0.1, 0.19).met_by(sample)
    assert not Objectives(1, 1).met_by(Sample(0, (0.1,), 0.5, 1, True, error="cut"))
    assert not Objectives(1, 1).met_by(Sample(0, (), 0.5, 0, True))


def test_cached_share_is_of_the_prompts_whose_length_is_known() -> None:
    known = Sample(0, (1,), 1, 1, True, prompt_tokens=80, cached_tokens=20)
    unknown = Sample(0, (1,), 1, 1, False)
    figures = summarize([known, unknown], Objectives())
    assert (figures.prompt_tokens, figures.cached_share) == (80, 0.25)
    assert not figures.counted_by_server
