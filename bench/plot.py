"""Draws each kernel's share of its limit as bars.

    python bench/plot.py RESULTS.json... OUT.png

Reads results of pytest-benchmark whose benchmarks carry, in ``extra_info``, kernel, tier, rows,
share and limit. Where files repeat a bar, the last one counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

_BAR = 0.8  # of the distance between two kernels, shared by their tiers
_INCH_PER_BAR = 0.22


class PlotError(Exception):
    """Results without anything to draw."""


@dataclass(frozen=True)
class Bar:
    """One kernel in one tier, for so many rows of activations at once."""

    kernel: str
    tier: str
    rows: int
    limit: str  # what the share is of: "bandwidth" or "int8 multiplies"
    share: float

    @property
    def label(self) -> str:
        return f"{self.kernel}, {self.rows} row{'s' if self.rows > 1 else ''}"


def read_bars(paths: Sequence[Path]) -> list[Bar]:
    """The bars of all files, in the order in which they first come.

    Raises:
        PlotError: A file is no result of pytest-benchmark, or none has a share.
    """
    bars: dict[tuple[str, str, int, str], Bar] = {}
    for path in paths:
        try:
            for bar in _bars(json.loads(path.read_text())):
                bars[bar.kernel, bar.tier, bar.rows, bar.limit] = bar
        except OSError as error:
            raise PlotError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise PlotError(
                f"{path} is no result of pytest-benchmark with kernels' shares "
                f"({type(error).__name__}: {error})"
            ) from error
    if not bars:
        raise PlotError("no benchmark of these files has a share in its extra_info")
    return list(bars.values())


def _bars(report: dict[str, Any]) -> list[Bar]:
    infos = [b.get("extra_info", {}) for b in report["benchmarks"]]
    return [
        Bar(str(i["kernel"]), str(i["tier"]), int(i["rows"]), str(i["limit"]), float(i["share"]))
        for i in infos
        if "share" in i  # other benchmarks may stand in the same file
    ]


def draw(bars: Sequence[Bar]) -> Figure:
    """A panel per limit: kernels downwards, a colour per tier."""
    limits = list(dict.fromkeys(b.limit for b in bars))
    colors = {tier: f"C{i}" for i, tier in enumerate(dict.fromkeys(b.tier for b in bars))}
    heights = [sum(b.limit == limit for b in bars) for limit in limits]
    figure = Figure(
        figsize=(9, 1.5 * len(limits) + _INCH_PER_BAR * len(bars)), layout="constrained"
    )
    panels = figure.subplots(len(limits), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, limit in zip(panels, limits, strict=True):
        _draw_panel(axes, [b for b in bars if b.limit == limit], colors)
        axes.set_title(f"Share of the machine's {limit}")
    handles = [Patch(color=color, label=tier) for tier, color in colors.items()]
    figure.legend(handles=handles, loc="outside right upper", fontsize="small")
    return figure


def _draw_panel(axes: Axes, bars: Sequence[Bar], colors: Mapping[str, str]) -> None:
    labels = list(dict.fromkeys(b.label for b in bars))
    tiers = list(dict.fromkeys(b.tier for b in bars))
    height = _BAR / len(tiers)
    for i, tier in enumerate(tiers):
        mine = [b for b in bars if b.tier == tier]
        offset = (i - (len(tiers) - 1) / 2) * height
        places = [labels.index(b.label) + offset for b in mine]
        drawn = axes.barh(places, [100 * b.share for b in mine], height, color=colors[tier])
        axes.bar_label(drawn, fmt="%.0f", padding=2, fontsize="small")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, max(110.0, *(108 * b.share for b in bars)))
    axes.set_xlabel("%")
    axes.axvline(100, color="black", linewidth=0.8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the picture; 0: done, 2: nothing to draw."""
    parser = argparse.ArgumentParser(description="Draw each kernel's share of its limit.")
    parser.add_argument("results", type=Path, nargs="+", help="JSON files of pytest-benchmark")
    parser.add_argument("out", type=Path, help="the PNG to write")
    options = parser.parse_args(arguments)
    try:
        bars = read_bars(options.results)
    except PlotError as error:
        print(f"plot.py: {error}", file=sys.stderr)
        return 2
    draw(bars).savefig(options.out, dpi=150)
    return 0


if __name__ == "__main__":
    sys.exit(main())
