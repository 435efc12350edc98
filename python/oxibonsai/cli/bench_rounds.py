"""Measure work and the machine's limits in turn.

On a shared machine both change from one second to the next, and only figures of the same moment make
a share.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Measure = Callable[[], float]

MOST_SPREAD = 0.25  # of the shares of the rounds, beside their median


def run_rounds(
    limits: Mapping[str, Measure],
    work: Mapping[str, Measure],
    rounds: int,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Measures the limits, then the work, round after round.

    Args:
        limits: What bounds the work, by its name.
        work: Rates by the test's name; each runs once before, to warm up.
        rounds: How often each is measured.
        progress: Told, between measurements, the rounds that are done, all of them, and what is
            known so far.

    Returns:
        The limits, each the better of what was measured before and after a round; and the work.
    """
    for measure in work.values():
        measure()
    found: dict[str, list[float]] = {name: [] for name in limits}
    done: dict[str, list[float]] = {name: [] for name in work}
    for done_rounds in range(rounds):
        _measure(limits, found)
        _measure(work, done)
        if progress is not None:
            rates = (
                f"{name} {statistics.median(values):.1f} tok/s" for name, values in done.items()
            )
            progress(done_rounds + 1, rounds, ", ".join(rates))
    _measure(limits, found)
    return {name: [max(pair) for pair in pairwise(values)] for name, values in found.items()}, done


def _measure(measures: Mapping[str, Measure], into: dict[str, list[float]]) -> None:
    for name, measure in measures.items():
        into[name].append(measure())


@dataclass(frozen=True)
class Share:
    """Work as a share of its limit.

    Attributes:
        value: The median of the rounds; None where it would mean nothing.
        spread: Of the rounds, largest less smallest, beside the median.
        doubt: Why there is no value; empty where there is one.
    """

    value: float | None
    spread: float
    doubt: str = ""

    @classmethod
    def of(cls, work: Sequence[float], limit: Sequence[float]) -> Share:
        """Return the share of each round, work and limit in the same unit."""
        shares = [w / most for w, most in zip(work, limit, strict=True)]
        middle = statistics.median(shares)
        spread = (max(shares) - min(shares)) / middle
        if spread > MOST_SPREAD:
            return cls(
                None,
                spread,
                f"the machine was too noisy for a share: the rounds differ by {spread:.0%}",
            )
        if max(shares) > 1.0:
            return cls(
                None,
                spread,
                f"no share: {max(shares):.0%} of what was measured as the limit; the weights stay in "
                "a cache, or others used the machine",
            )
        return cls(middle, spread)
