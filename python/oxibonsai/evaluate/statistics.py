"""Means with their standard errors, and percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error, in the value's own unit."""

    value: float
    error: float


def mean(values: Values) -> Estimate:
    """Return the mean of at least one value; the error of one alone is 0."""
    count = len(values)
    variance = float(np.var(values)) / (count - 1) if count > 1 else 0.0
    return Estimate(float(np.mean(values)), variance**0.5)


def exponential(log: Estimate) -> Estimate:
    """Return ``e**log``, the error carried over to first order."""
    value = float(np.exp(log.value))
    return Estimate(value, value * log.error)


def ratio(values: Values, weights: Values) -> Estimate:
    """Return the sum of values as a multiple of that of weights, pair by pair, the error to first order."""
    found = float(values.sum() / weights.sum())
    rest = mean(values - found * weights)
    return Estimate(found, rest.error / float(weights.mean()))


def difference(a: Estimate, b: Estimate, correlation: float) -> Estimate:
    """Return ``a - b`` of two estimates with a correlation."""
    variance = a.error**2 + b.error**2 - 2.0 * correlation * a.error * b.error
    return Estimate(a.value - b.value, max(variance, 0.0) ** 0.5)


def root(square: Estimate) -> Estimate:
    """Return the square root, the error carried over to first order."""
    value = square.value**0.5
    return Estimate(value, 0.5 * square.error / value if value > 0.0 else 0.0)


def correlation(a: Values, b: Values) -> float:
    """Return Pearson's correlation; 0 where one of the two does not vary."""
    spread = float(np.std(a) * np.std(b))
    return float(np.mean((a - a.mean()) * (b - b.mean()))) / spread if spread > 0.0 else 0.0


def percentiles(values: Values, percents: Sequence[float]) -> dict[str, float]:
    """Return percentiles, interpolated linearly between the two nearest ranks, by the percents as text."""
    found = np.percentile(values, percents)
    return {f"{p:g}": float(v) for p, v in zip(percents, found, strict=True)}
