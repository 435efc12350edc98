"""Compares two results of the same benchmark; exit status 1 where the new one is slower.

    python bench/compare.py OLD.json NEW.json [--tolerance 5]

Takes what ``oxibonsai bench --json``, compare_llama_cpp.py and pytest-benchmark write.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ResultError(Exception):
    """A file that holds no benchmark results."""


@dataclass(frozen=True)
class Figure:
    """A median, and whether more of it is better (a rate) or worse (a time)."""

    value: float
    unit: str  # "tok/s" or "s"

    @property
    def speed(self) -> float:
        return 1 / self.value if self.unit == "s" else self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} {self.unit}"


Figures = Mapping[str, Figure]


def read_figures(path: Path) -> dict[str, Figure]:
    """Medians by the name of their benchmark.

    Raises:
        ResultError: The file is no JSON of a known kind, or a median is not above 0.
    """
    try:
        figures = _figures(json.loads(path.read_text()))
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(
            f"{path} is no JSON of oxibonsai bench, compare_llama_cpp.py or pytest-benchmark "
            f"({type(error).__name__}: {error})"
        ) from error
    for name, figure in figures.items():
        if not figure.value > 0:
            raise ResultError(f"{path}: the median of {name} is {figure.value}; it must be above 0")
    return figures


def _figures(report: dict[str, Any]) -> dict[str, Figure]:
    if "benchmarks" in report:  # pytest-benchmark
        entries = report["benchmarks"]
        return {b["fullname"]: Figure(float(b["stats"]["median"]), "s") for b in entries}
    rates = {row["test"]: row.get("oxibonsai", row)["median"] for row in report["rows"]}
    return {test: Figure(float(rate), "tok/s") for test, rate in rates.items()}


@dataclass(frozen=True)
class Comparison:
    """A benchmark that both results have; the ratio is one of speeds, so more is better."""

    name: str
    old: Figure
    new: Figure

    @property
    def ratio(self) -> float:
        return self.new.speed / self.old.speed

    def slower(self, tolerance: float) -> bool:
        """Whether more than the tolerated percentage of the speed is lost."""
        return self.ratio < 1 - tolerance / 100


def compare(old: Figures, new: Figures) -> list[Comparison]:
    """The benchmarks in both, in the old one's order.

    Raises:
        ResultError: There is none.
    """
    pairs = [Comparison(name, old[name], new[name]) for name in old if name in new]
    if not pairs:
        raise ResultError("the two files have no benchmark in common")
    return pairs


def table(comparisons: Sequence[Comparison], tolerance: float) -> str:
    """Markdown; what is too slow is marked."""
    lines = ["| benchmark | old | new | speed | |", "| --- | --- | --- | --- | --- |"]
    for c in comparisons:
        mark = "slower" if c.slower(tolerance) else ""
        lines.append(f"| {c.name} | {c.old} | {c.new} | {c.ratio:.3f} | {mark} |")
    return "\n".join(lines)


def unmatched(old: Figures, new: Figures) -> list[str]:
    """A line for each benchmark that only one result has: nothing is dropped in silence."""
    gone = [f"only in the old result: {name}" for name in old if name not in new]
    return gone + [f"only in the new result: {name}" for name in new if name not in old]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 0: as fast, 1: slower somewhere, 2: nothing to compare."""
    parser = argparse.ArgumentParser(description="Compare two results of the same benchmark.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--tolerance", type=float, default=5.0, metavar="PERCENT",
        help="loss of speed that is taken for noise (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        old, new = read_figures(options.old), read_figures(options.new)
        comparisons = compare(old, new)
    except ResultError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    print("\n".join([table(comparisons, options.tolerance), *unmatched(old, new)]))
    return int(any(c.slower(options.tolerance) for c in comparisons))


if __name__ == "__main__":
    sys.exit(main())
