"""Measures in turn, round after round, on a machine that shares its processors with others."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Of the processors' time: above this, a turn is taken again.
MOST_STOLEN = 0.02
_MOST_TRIES = 4
_STOLEN_FIELD = 8  # of the first line of /proc/stat, which begins with "cpu": steal


@dataclass(frozen=True)
class Turn:
    """One call of a measure that counts.

    Attributes:
        value: What it gave.
        stolen: The share of the processors' time that the host gave to other machines meanwhile.
        tries: Calls until there was little of that, or there were enough of them.
    """

    value: float
    stolen: float
    tries: int


@dataclass(frozen=True)
class Rounds:
    """The turns of each measure, by its name, in the order of the rounds."""

    turns: Mapping[str, Sequence[Turn]]

    def of(self, name: str) -> list[float]:
        """What a measure gave in each round."""
        return [turn.value for turn in self.turns[name]]

    @property
    def repeated(self) -> int:
        """Turns that were taken again, each time counted."""
        return sum(turn.tries - 1 for turns in self.turns.values() for turn in turns)

    @property
    def most_stolen(self) -> float:
        """Of a turn that counts."""
        return max(turn.stolen for turns in self.turns.values() for turn in turns)


def in_turn(
    measures: Mapping[str, Callable[[], float]],
    repetitions: int,
    stolen_seconds: Callable[[], float] | None = None,
) -> Rounds:
    """Calls the measures in turn: once to warm up, then ``repetitions`` times for the result.

    Where the machine is a virtual one, its host can take the processors away for tenths of a
    second, which says nothing about who was measured then. Such a turn is taken again at once, a
    few times; the one from which least was stolen counts.

    Args:
        measures: By name; what they give is not looked at.
        repetitions: Rounds.
        stolen_seconds: A clock of what was stolen from all processors together; the system's.
    """
    clock = stolen_seconds or _stolen_seconds
    for measure in measures.values():
        measure()
    rounds = [
        {name: _take_turn(measure, clock) for name, measure in measures.items()}
        for _ in range(repetitions)
    ]
    return Rounds({name: [r[name] for r in rounds] for name in measures})


def _take_turn(measure: Callable[[], float], clock: Callable[[], float]) -> Turn:
    found: list[tuple[float, float]] = []  # stolen, value
    while len(found) < _MOST_TRIES and (not found or found[-1][0] > MOST_STOLEN):
        started, stolen = time.perf_counter(), clock()
        value = measure()
        stolen = clock() - stolen
        seconds = time.perf_counter() - started
        found.append((stolen / (seconds * (os.cpu_count() or 1)), value))
    stolen, value = min(found, key=lambda f: f[0])
    return Turn(value, stolen, len(found))


def _stolen_seconds() -> float:
    """Since the machine's start, of all processors; 0 where the system doesn't count it."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().split("\n", 1)[0].split()
    return int(fields[_STOLEN_FIELD]) / os.sysconf("SC_CLK_TCK")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {key: round(value, 3) for key, value in found.items()}
