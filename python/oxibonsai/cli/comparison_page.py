"""The results of ``oxibonsai compare``: a table, a page of Markdown, its plots, and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from oxibonsai import __version__
from oxibonsai.engine import MemoryEstimate
from oxibonsai.evaluate import Comparison, Divergence, Estimate, TextScores
from oxibonsai.evaluate.statistics import exponential, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = ("C0", "C1")  # of A and B
_CURVE_POINTS = 397


@dataclass(frozen=True)
class Side:
    """Facts about one model beside its scores.

    Attributes:
        name: As it was given.
        path: Its file or folder.
        kv_type: Of keys and values; None: it keeps none.
        weight_bytes: Of all tensors in the file.
        parameters: Weights; tied ones count once.
        memory: That it takes.
        rates: Tokens per second by test and round.
    """

    name: str
    path: str
    kv_type: str | None
    weight_bytes: int
    parameters: int
    memory: MemoryEstimate
    rates: list[list[float]]

    @property
    def bits_per_weight(self) -> float:
        """Bits of the file for each weight."""
        return 8 * self.weight_bytes / max(self.parameters, 1)


@dataclass(frozen=True)
class Report:
    """Everything that was found.

    Attributes:
        a: The first model.
        b: The second.
        tests: Names of what was timed.
        comparison: Of the texts.
        texts: Their files with their bytes.
        ctx_size: Tokens of a window.
        machine: Facts about it.
        device: That the models ran on.
    """

    a: Side
    b: Side
    tests: list[str]
    comparison: Comparison
    texts: list[tuple[str, int]]
    ctx_size: int
    machine: dict[str, Any]
    device: str

    def speedup(self, test: int) -> Estimate:
        """Return B's speed as a multiple of A's, from the rounds in which both ran."""
        logs = np.log(np.array(self.b.rates[test]) / np.array(self.a.rates[test]))
        return exponential(mean(logs))


class Row(NamedTuple):
    """A line of the table of both models; the last word sets B beside A."""

    name: str
    a: str
    b: str
    beside: str


def rows(report: Report) -> list[Row]:
    """Return the table of both models."""
    a, b, found = report.a, report.b, report.comparison
    divergence = found.divergence
    return [
        Row("perplexity", *_both(found, lambda s: _text(s.perplexity.ppl)),
            "-" if divergence is None else f"{_text(divergence.ratio)} x"),
        Row("bits per byte", *_both(found, lambda s: _text(s.bits_per_byte)),
            _text(found.bits_per_byte_difference, sign="+")),
        Row("weights", _megabytes(a.weight_bytes), _megabytes(b.weight_bytes),
            _times(b.weight_bytes, a.weight_bytes)),
        Row("bits per weight", f"{a.bits_per_weight:.2f}", f"{b.bits_per_weight:.2f}",
            _times(b.bits_per_weight, a.bits_per_weight)),
        Row("memory", _megabytes(a.memory.total),
            _megabytes(b.memory.total), _times(b.memory.total, a.memory.total)),
        *(
            Row(f"{test}, tok/s", _rate(a.rates[i]), _rate(b.rates[i]),
                f"{_text(report.speedup(i), 2)} x")
            for i, test in enumerate(report.tests)
        ),
    ]  # fmt: skip


def divergence_rows(divergence: Divergence) -> list[tuple[str, str]]:
    """Return the figures of B's divergence from A."""
    kl = divergence.kl_percentiles
    return [
        ("same top token", _text(divergence.same_top, 3, 100, " %")),
        ("KL divergence, mean", f"{_text(divergence.kl, 6)} nats"),
        *((f"KL divergence, {_rank(p)}", f"{kl[p]:.6f} nats") for p in ("50", "90", "99", "100")),
        ("probability of the text's token, B - A", _text(divergence.delta_p, 3, 100, " %")),
        ("root mean square of that", _text(divergence.delta_p_rms, 3, 100, " %")),
        ("correlation of log-likelihoods", f"{divergence.correlation:.4f}"),
    ]


def notes(report: Report) -> Iterator[str]:
    """Yield what the figures are of, a sentence each."""
    found = report.comparison
    for name, size in report.texts:
        yield f"Text: {name}, {size:,} bytes."
    yield f"Windows of {report.ctx_size} tokens, of which the second half counts."
    if found.differing is None:
        yield f"Scored: {_scored(found.a)}."
    else:
        yield f"Scored: {_scored(found.a)} (A); {_scored(found.b)} (B)."
        yield "Each model has windows of its own, so they don't score exactly the same bytes."
    yield f"Memory: estimated, on a CPU, with one text of {report.a.memory.ctx_size:,} positions."
    if report.tests:
        rounds = len(report.a.rates[0])
        yield (
            f"Speed: {rounds} rounds, in each of which both models run; ppN reads a prompt of N tokens, "
            "tgN generates N."
        )
    yield "± is one standard error: of the scored tokens, and of the rounds."
    of = report.machine
    yield (
        f"Machine: {of['cpu']}, {of['threads']} threads, {of['tier']}, device {report.device}; cached "
        f"keys and values: {report.a.kv_type or 'none'} (A), {report.b.kv_type or 'none'} (B); "
        f"oxibonsai {__version__}."
    )


def _scored(scores: TextScores) -> str:
    return (
        f"{scores.windows:,} windows, {len(scores.nll):,} tokens, "
        f"{scores.token_bytes.sum():,.0f} bytes"
    )


def no_divergence(differing: str) -> str:
    """Return a sentence for models whose tokens are not the same."""
    return f"No KL divergence and no top-1 agreement: {differing}. Bits per byte can be compared."


def page(report: Report, plots: Path | None) -> str:
    """Return the page in Markdown.

    Args:
        report: What was found.
        plots: The file of its plots, in the same folder; None: there is none.
    """
    found = report.comparison
    lines = [
        "# Comparison of two models",
        "",
        *(
            f"- {side}: `{s.name}`, {s.parameters:,} parameters"
            for side, s in (("A", report.a), ("B", report.b))
        ),
        "",
        "| | A | B | B beside A |",
        "| --- | ---: | ---: | ---: |",
        *("| " + " | ".join(row) + " |" for row in rows(report)),
        "",
        "## Divergence of B from A",
        "",
    ]
    if found.divergence is None:
        assert found.differing is not None
        lines.append(no_divergence(found.differing))
    else:
        lines += ["| | |", "| --- | ---: |"]
        lines += [f"| {name} | {value} |" for name, value in divergence_rows(found.divergence)]
    if plots is not None:
        lines += ["", f"![Plots of these figures]({quote(plots.name)})"]
    lines += ["", "## What was measured", "", *(f"- {note}" for note in notes(report))]
    return "\n".join(lines) + "\n"


def show(report: Report) -> None:
    """Print the figures as tables."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for side, s in (("A", report.a), ("B", report.b)):
        console.print(Text(f"{side}: {s.name}, {s.parameters:,} parameters"), soft_wrap=True)
    table = Table("", "A", "B", "B beside A", box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows(report):
        table.add_row(*row)
    console.print(table, soft_wrap=True)
    found = report.comparison
    if found.divergence is None:
        assert found.differing is not None
        console.print(Text(no_divergence(found.differing)), soft_wrap=True)
    else:
        figures = Table("divergence of B from A", "", box=box.SIMPLE)
        figures.columns[1].justify = "right"
        for name, value in divergence_rows(found.divergence):
            figures.add_row(name, value)
        console.print(figures, soft_wrap=True)
    for note in notes(report):
        console.print(Text(note), soft_wrap=True)


def json_report(report: Report) -> dict[str, Any]:
    """Return everything as plain values."""
    found = report.comparison
    sides = {
        key: {
            "model": side.name,
            "path": side.path,
            "kv_type": side.kv_type,
            "weight_bytes": side.weight_bytes,
            "parameters": side.parameters,
            "bits_per_weight": round(side.bits_per_weight, 3),
            "memory": {
                "ctx_size": side.memory.ctx_size,
                "parts": side.memory.parts,
                "total": side.memory.total,
            },
            **dataclasses.asdict(scores.perplexity),
            "bytes": int(scores.token_bytes.sum()),
            "bits_per_byte": dataclasses.asdict(scores.bits_per_byte),
            "tok_s": {
                test: {**dataclasses.asdict(mean(np.array(rates))), "rounds": rates}
                for test, rates in zip(report.tests, side.rates, strict=True)
            },
        }
        for key, side, scores in (("a", report.a, found.a), ("b", report.b, found.b))
    }
    divergence = None if found.divergence is None else dataclasses.asdict(found.divergence)
    return {
        "version": __version__,
        "machine": report.machine,
        "device": report.device,
        "ctx_size": report.ctx_size,
        "texts": [{"path": path, "bytes": size} for path, size in report.texts],
        **sides,
        "bits_per_byte_difference": dataclasses.asdict(found.bits_per_byte_difference),
        "divergence": divergence,
        "no_divergence": found.differing,
        "speedup": {
            test: dataclasses.asdict(report.speedup(i)) for i, test in enumerate(report.tests)
        },
    }


def draw(report: Report) -> Figure:
    """Return the plots: bits per byte, divergence by position, memory by its parts, speed."""
    from matplotlib.figure import Figure

    found = report.comparison
    count = 2 + (found.kl is not None) + len(report.tests)
    figure = Figure(figsize=(3.4 * count, 3.6), layout="constrained")
    panels = iter(figure.subplots(1, count))
    _draw_bars(next(panels), "bits per byte", [found.a.bits_per_byte, found.b.bits_per_byte])
    if found.kl is not None:
        # Few positions are far beyond the others: the table has the maximum.
        shares = np.linspace(0, 99, _CURVE_POINTS)
        axes = next(panels)
        axes.plot(np.percentile(found.kl, shares), shares, color=_COLORS[1])
        axes.set_title("KL divergence from A")
        axes.set_xlabel("nats, up to 99 % of the positions")
        axes.set_ylabel("% of positions below")
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
    _draw_memory(next(panels), report)
    for i, test in enumerate(report.tests):
        rates = [mean(np.array(side.rates[i])) for side in (report.a, report.b)]
        _draw_bars(next(panels), f"{test}, tok/s", rates)
    return figure


def _draw_bars(axes: Axes, title: str, estimates: list[Estimate]) -> None:
    heights, errors = ([getattr(e, part) for e in estimates] for part in ("value", "error"))
    axes.bar(["A", "B"], heights, yerr=errors, color=_COLORS, width=0.6, capsize=4)
    _finish(axes, title)


def _draw_memory(axes: Axes, report: Report) -> None:
    parts = [side.memory.parts for side in (report.a, report.b)]
    tops = [list(accumulate(p.values(), initial=0)) for p in parts]
    for i, name in enumerate(parts[0]):
        sizes = [p[name] / 1e6 for p in parts]
        if any(sizes):
            bottoms = [top[i] / 1e6 for top in tops]
            axes.bar(["A", "B"], sizes, bottom=bottoms, width=0.6, label=name.replace("_", " "))
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    _finish(axes, "memory, estimated, MB")


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.margins(x=0.2, y=0.1)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _both(found: Comparison, text: Callable[[TextScores], str]) -> tuple[str, str]:
    return text(found.a), text(found.b)


def _text(
    estimate: Estimate, digits: int = 4, factor: float = 1, unit: str = "", sign: str = ""
) -> str:
    value = format(factor * estimate.value, f"{sign}.{digits}f")
    return f"{value} ± {factor * estimate.error:.{digits}f}{unit}"


def _rank(percent: str) -> str:
    return {"100": "maximum", "50": "median"}.get(percent, f"{percent} % of positions below")


def _rate(rates: list[float]) -> str:
    return _text(mean(np.array(rates)), 1)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _times(b: float, a: float) -> str:
    return f"{b / a:.3f} x"
