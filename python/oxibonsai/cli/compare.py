"""``oxibonsai compare``: two models on the same texts and the same machine."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.bench import Measure, machine, measure_generation, measure_prompt, run_rounds
from oxibonsai.cli.bench_output import Test
from oxibonsai.cli.comparison_page import Report, Side, draw, json_report, page, show
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.kv_type_options import kv_type_option, value_type_option
from oxibonsai.cli.model_choice import complete_model
from oxibonsai.cli.options import (
    device_option,
    json_option,
    load_engine,
    quant_type_option,
    threads_option,
)
from oxibonsai.cli.output import OutputFile
from oxibonsai.cli.perplexity import read_text
from oxibonsai.engine import Engine
from oxibonsai.engine.memory_estimate import MemoryPlan, find_tower
from oxibonsai.errors import RequestError
from oxibonsai.evaluate import compare_models
from oxibonsai.files.figures import require_matplotlib, save_figure
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import is_standard_output, make_room, written_whole
from oxibonsai.hf.config import count_parameters


@click.command(cls=Command)
@click.argument("a", metavar="A", shell_complete=complete_model)
@click.argument("b", metavar="B", shell_complete=complete_model)
@click.option(
    "--file",
    "-f",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="A text, in UTF-8; may be repeated.",
)
@click.option(
    "--output",
    "-o",
    type=OutputFile(),
    metavar="OUT.md",
    help="Write a page of Markdown, and its plots beside it as OUT.svg.",
)
@click.option(
    "--plots/--no-plots",
    default=True,
    show_default=True,
    help="Whether the page has plots, for which matplotlib is needed.",
)
@click.option(
    "--ctx-size",
    "-c",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Tokens of a window.",
)
@click.option(
    "--chunks", type=click.IntRange(1), help="Windows of each text at most. Default: all."
)
@click.option(
    "-p",
    "--n-prompt",
    type=click.IntRange(0),
    default=512,
    show_default=True,
    help="Tokens of the prompt whose reading is timed; 0: none is.",
)
@click.option(
    "-n",
    "--n-gen",
    type=click.IntRange(0),
    default=128,
    show_default=True,
    help="Tokens whose generation is timed; 0: none is.",
)
@click.option(
    "-r",
    "--repetitions",
    type=click.IntRange(2),
    default=5,
    show_default=True,
    help="Rounds of these; both models run in each.",
)
@quant_type_option
@device_option
@threads_option
@kv_type_option
@value_type_option
@json_option
def compare(
    a: str,
    b: str,
    files: tuple[Path, ...],
    output: Path | None,
    plots: bool,
    ctx_size: int,
    chunks: int | None,
    n_prompt: int,
    n_gen: int,
    repetitions: int,
    quant_type: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare two models: perplexity, divergence, top-1 agreement, speed and memory.

    A and B are files, folders or names, as --model of other commands takes them. B is measured
    beside A: a divergence above 0, or a speed of 2 x, is B's.
    """
    plot_file = _plot_file(output) if output is not None and plots else None
    for place in (output, plot_file):
        if place is not None:
            make_room(place)  # before minutes of work that could not be kept
    texts = [read_text(file) for file in files]
    tests = [t for t in (Test(n_prompt, 0), Test(0, n_gen)) if t.prompt or t.generated]
    positions = max([ctx_size, *(t.prompt + t.generated + 1 for t in tests)])
    first, second = (
        load_engine(name, quant_type, ctx_size=positions, parallel=1, prefix_cache=False, **options)
        for name in (a, b)
    )
    for name, engine in ((a, first), (b, second)):
        if engine.ctx_size < positions:
            raise RequestError(
                f"{name} has a context of {engine.ctx_size} positions, {positions} are to be "
                "measured: choose a smaller --ctx-size, -p and -n"
            )
    with step_progress("Scoring the texts", "windows") as progress:
        comparison = compare_models(
            first, second, texts, ctx_size, chunks, lambda done, total: progress(done, total, "")
        )
    rates = _measure_rates(first, second, tests, repetitions)
    report = Report(
        a=_side(a, first, positions, [found for found, _ in rates]),
        b=_side(b, second, positions, [found for _, found in rates]),
        tests=[test.name for test in tests],
        comparison=comparison,
        texts=[(str(file), len(text.encode())) for file, text in zip(files, texts, strict=True)],
        ctx_size=ctx_size,
        machine=machine(first.model.device.threads),
        device=first.model.device.name,
    )
    if plot_file is not None:
        save_figure(draw(report), plot_file)
    if output is not None:
        with written_whole(output) as out:
            out.write(page(report, plot_file).encode())
    if as_json:
        click.echo(json.dumps(json_report(report)))
    elif output is None or not is_standard_output(output):
        show(report)


def _plot_file(page: Path) -> Path:
    """Return where the plots of a page go.

    Raises:
        RequestError: There is no place beside the page, or matplotlib is not installed.
    """
    require_matplotlib()
    place = page.with_suffix(".svg")
    if is_standard_output(page) or place == page:
        raise RequestError(
            f"plots stand in a file beside the page, which {page} leaves no name for: write to "
            "OUT.md, or give --no-plots"
        )
    return place


def _measure_rates(
    a: Engine, b: Engine, tests: list[Test], repetitions: int
) -> list[tuple[list[float], list[float]]]:
    """Return tokens per second of both models for each test, round by round."""
    work: dict[str, Measure] = {}
    for test in tests:
        for side, engine in (("A", a), ("B", b)):
            work[f"{side} {test.name}"] = (
                partial(measure_prompt, engine, test.prompt)
                if test.prompt
                else partial(measure_generation, engine, test.generated)
            )
    with step_progress("Measuring", "rounds") as progress:
        _, rates = run_rounds({}, work, repetitions, progress)
    return [(rates[f"A {t.name}"], rates[f"B {t.name}"]) for t in tests]


def _side(name: str, engine: Engine, positions: int, rates: list[list[float]]) -> Side:
    checkpoint = engine.model.weights.checkpoint
    plan = MemoryPlan(checkpoint, find_tower(name, checkpoint))
    return Side(
        name=name,
        path=str(checkpoint.path),
        kv_type=engine.kv_type,
        weight_bytes=sum(t.nbytes for t in checkpoint.file.tensors),
        parameters=count_parameters(checkpoint),
        memory=plan.estimate(positions, 1, engine.kv_type),
        rates=rates,
    )
