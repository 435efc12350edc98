"""Results of a run as a table, as JSON and as a plot."""

from __future__ import annotations

import dataclasses
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from oxibonsai.files.figures import require_matplotlib, save_figure
from oxibonsai.loadtest.client import Sample
from oxibonsai.loadtest.schedule import ClosedLoop, OpenLoop
from oxibonsai.loadtest.statistics import Figures


@dataclass(frozen=True)
class Level:
    """One level of load and what came of it."""

    load: ClosedLoop | OpenLoop
    figures: Figures
    samples: list[Sample]

    @property
    def name(self) -> str:
        """Such as ``8 clients`` or ``2.5 req/s``."""
        if isinstance(self.load, OpenLoop):
            return f"{self.load.rate:g} req/s"
        return f"{self.load.concurrency} client" + "s" * (self.load.concurrency > 1)


def as_json(settings: dict[str, Any], levels: list[Level], raw: bool) -> dict[str, Any]:
    """Return everything the table shows and more; with `raw` every request's own times."""
    return {"settings": settings, "levels": [_level(level, raw) for level in levels]}


def _level(level: Level, raw: bool) -> dict[str, Any]:
    loop = "open" if isinstance(level.load, OpenLoop) else "closed"
    entry = {"loop": loop, **dataclasses.asdict(level.load), **level.figures.as_dict()}
    if raw:
        start = min(s.sent for s in level.samples)
        entry["samples"] = [
            {**dataclasses.asdict(s), "sent": s.sent - start, "ttft": s.ttft, "tpot": s.tpot}
            for s in level.samples
        ]
    return entry


def tables(levels: list[Level]) -> Group:
    """Return the server's rates, its clients' waiting times, and the errors."""
    return Group(_throughput(levels), _latencies(levels), *_notes(levels))


def _throughput(levels: list[Level]) -> Table:
    with_goodput = any(level.figures.goodput_per_s is not None for level in levels)
    table = Table("load", box=box.SIMPLE_HEAD)
    heads = ("requests", "errors", "output tok/s", "req/s", "good req/s")
    for head in heads if with_goodput else heads[:-1]:
        table.add_column(head, justify="right")
    for level in levels:
        f = level.figures
        failed = sum(f.errors.values())
        cells = [f"{f.requests}", f"[red]{failed}[/red]" if failed else "0"]
        cells += [f"{f.output_tokens_per_s:.1f}", f"{f.requests_per_s:.2f}"]
        table.add_row(level.name, *cells, f"{f.goodput_per_s:.2f}" if with_goodput else None)
    return table


def _latencies(levels: list[Level]) -> Table:
    table = Table("load", "ms", box=box.SIMPLE_HEAD)
    for head in ("mean", "p50", "p90", "p99", "max"):
        table.add_column(head, justify="right")
    for level in levels:
        f = level.figures
        times = {"TTFT": f.ttft_ms, "ITL": f.itl_ms, "TPOT": f.tpot_ms, "E2E": f.e2e_ms}
        for name, spread in times.items():
            cells = ["-"] * 5 if spread is None else [f"{x:.1f}" for x in astuple(spread)]
            last = name == "E2E"
            table.add_row(level.name if name == "TTFT" else "", name, *cells, end_section=last)
    return table


def _notes(levels: list[Level]) -> list[Text]:
    notes = []
    if not all(level.figures.counted_by_server for level in levels):
        notes.append(
            Text("The server gave no usage: tokens are counted as chunks, which may hold several.")
        )
    for level in levels:
        for what, count in level.figures.errors.items():
            notes.append(Text(f"{level.name}: {count} x {what}", style="red"))
    return notes


def plot(levels: list[Level], path: Path) -> None:
    """Plot throughput, TTFT and ITL over the levels, closed and open loops side by side.

    Raises:
        RequestError: matplotlib is not installed, or can't write this kind of file.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    throughput, ttft, itl = figure.subplots(1, 3)
    names = [level.name for level in levels]
    positions = range(len(levels))
    throughput.bar(positions, [level.figures.output_tokens_per_s for level in levels], color="C0")
    throughput.set_title("output tokens per second")
    for axes, field, title in ((ttft, "ttft_ms", "TTFT, ms"), (itl, "itl_ms", "ITL, ms")):
        axes.set_title(title)
        for color, percentile in (("C0", "p50"), ("C1", "p90"), ("C3", "p99")):
            spreads = [getattr(level.figures, field) for level in levels]
            heights = [getattr(s, percentile) if s else float("nan") for s in spreads]
            axes.plot(positions, heights, "_", color=color, ms=22, mew=3, label=percentile)
        axes.legend()
    for axes in (throughput, ttft, itl):
        axes.set_xticks(positions, names, rotation=30, ha="right")
        axes.margins(x=0.15, y=0.1)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
