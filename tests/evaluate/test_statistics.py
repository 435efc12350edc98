"""Means, errors and percentiles of a few values, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oxibonsai.evaluate.statistics import (
    Estimate,
    correlation,
    exponential,
    mean,
    percentiles,
    ratio,
    root,
)


def test_the_error_of_a_mean() -> None:
    # Variance 2/3, over the two degrees of freedom that are left.
    assert mean(np.array([1.0, 2.0, 3.0])) == Estimate(2.0, pytest.approx(math.sqrt(1 / 3)))
    assert mean(np.array([5.0])) == Estimate(5.0, 0.0)


def test_a_ratio_of_sums() -> None:
    # With equal weights it is a mean; with values that follow their weights there is no error.
    assert ratio(np.array([1.0, 3.0]), np.array([1.0, 1.0])) == Estimate(2.0, pytest.approx(1.0))
    assert ratio(np.array([2.0, 6.0]), np.array([1.0, 3.0])) == Estimate(2.0, 0.0)
    # 12 of 4; rests 3 - 3 * 1, 3 - 3 * 2, 6 - 3 * 1: variance 6, over two, beside a mean of 4/3.
    found = ratio(np.array([3.0, 3.0, 6.0]), np.array([1.0, 2.0, 1.0]))
    assert found == Estimate(3.0, pytest.approx(math.sqrt(6 / 2) / (4 / 3)))


def test_errors_carry_over_to_first_order() -> None:
    assert exponential(Estimate(0.0, 0.1)) == Estimate(1.0, pytest.approx(0.1))
    assert root(Estimate(4.0, 0.4)) == Estimate(2.0, pytest.approx(0.1))
    assert root(Estimate(0.0, 0.0)) == Estimate(0.0, 0.0)


def test_correlation_is_between_minus_one_and_one() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert correlation(values, -2 * values) == pytest.approx(-1.0)
    assert correlation(values, np.ones(3)) == 0.0


def test_percentiles_lie_between_the_two_nearest_ranks() -> None:
    found = percentiles(np.array([4.0, 1.0, 3.0, 2.0]), (100, 50, 10, 0))
    assert found == {"100": 4.0, "50": 2.5, "10": pytest.approx(1.3), "0": 1.0}
