"""Arrivals and limits."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.errors import RequestError
from oxibonsai.loadtest.schedule import Limit, poisson_arrivals


@given(st.floats(0.01, 1e4), st.integers(0, 2**32))
def test_arrivals_are_the_same_for_the_same_seed_and_never_go_back(rate: float, seed: int) -> None:
    first = list(islice(poisson_arrivals(rate, seed), 20))
    assert first == list(islice(poisson_arrivals(rate, seed), 20))
    assert all(later >= earlier >= 0 for earlier, later in pairwise(first))


def test_gaps_are_exponential() -> None:
    count, rate = 20_000, 4.0
    at = [0.0, *islice(poisson_arrivals(rate, 1), count)]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    # Mean and standard deviation of an exponential are both 1/rate; five standard errors of each.
    mean = sum(gaps) / count
    deviation = (sum((g - mean) ** 2 for g in gaps) / count) ** 0.5
    assert abs(mean * rate - 1) < 5 / count**0.5
    assert abs(deviation * rate - 1) < 5 * 2**0.5 / count**0.5


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(RequestError, match="a rate is above 0"):
        next(poisson_arrivals(rate, 0))


def test_a_limit_is_requests_or_seconds() -> None:
    assert [Limit(requests=2).allows(i, 1e9) for i in range(3)] == [True, True, False]
    assert [Limit(seconds=1.0).allows(10**9, t) for t in (0.0, 0.9, 1.0)] == [True, True, False]
    for limit in ({}, {"requests": 1, "seconds": 1.0}):
        with pytest.raises(RequestError, match="give one"):
            Limit(**limit)
