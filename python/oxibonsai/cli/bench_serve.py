"""``oxibonsai bench serve``: load on a running server, as its clients see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.output import OutputFile
from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.files.figures import require_matplotlib
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import is_standard_output, make_room, written_whole


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the server to measure."""
    for option in (
        click.option("--timeout", type=click.FloatRange(0, min_open=True), default=600.0,
                     show_default=True, help="Seconds after which a request has failed."),
        click.option("--api-key", envvar="OXIBONSAI_API_KEY", help="Default: OXIBONSAI_API_KEY."),
        click.option("--model", "-m", help="The model to ask for. Default: the first that it lists."),
        click.option("--url", required=True,
                     help="The API's base, such as http://127.0.0.1:8080/v1."),
    ):  # fmt: skip
        command = option(command)
    return command


def numbers(parse: Callable[[str], float]) -> Callable[..., list[Any] | None]:
    """Return a callback that parses a list of positive numbers such as 1,4,8."""

    def callback(_: click.Context, __: click.Parameter, text: str | None) -> list[Any] | None:
        if text is None:
            return None
        try:
            found = [parse(part) for part in text.split(",")]
        except ValueError:
            raise click.BadParameter(f"{text!r} is no list such as 1,4,8") from None
        if not all(0 < number < float("inf") for number in found):
            raise click.BadParameter("every number must be above 0")
        return found

    return callback


@click.command(short_help="Measure a running server under load.")
@server_options
@click.option(
    "--concurrency",
    "-c",
    callback=numbers(int),
    help="Closed loops of so many clients. Default without --rate: 1,4,8,16.",
)
@click.option(
    "--rate",
    callback=numbers(float),
    help="Open loops of so many requests a second, arriving at random (Poisson).",
)
@click.option("--requests", type=click.IntRange(1), help="Requests a level. Default: 32.")
@click.option("--duration", type=click.FloatRange(0, min_open=True), help="Or seconds a level.")
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True,
              help="Requests before each level that don't count.")  # fmt: skip
@click.option("--prompt-tokens", type=click.IntRange(1), help="Length of made-up prompts, about. "
              "Default: 256.")  # fmt: skip
@click.option("--max-tokens", "-n", type=click.IntRange(1), default=128, show_default=True)
@click.option("--ignore-eos", is_flag=True, help="Ask for answers of the full length, where the "
              "server knows ignore_eos.")  # fmt: skip
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A prompt a line; in .jsonl a string or a list of messages.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of prompts and arrivals.")
@click.option("--slo-ttft-ms", type=click.FloatRange(0, min_open=True), help="Goodput: TTFT.")
@click.option("--slo-tpot-ms", type=click.FloatRange(0, min_open=True), help="Goodput: TPOT.")
@click.option(
    "--json",
    "json_file",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    type=OutputFile(),
    help="Write the figures to this file; without one, print them as one JSON object.",
)
@click.option("--raw", is_flag=True, help="With every request's own times in the JSON.")
@click.option("--plot", "plot_file", type=OutputFile(), help="Plot the figures (PNG, SVG, PDF).")
def serve(
    concurrency: list[int] | None,
    rate: list[float] | None,
    json_file: Path | None,
    raw: bool,
    plot_file: Path | None,
    seed: int,
    **options: Any,
) -> None:
    """Measure a running OpenAI-style server under load.

    TTFT is the time to the first usable token, ITL the time between chunks, TPOT the time per
    token after the first, E2E the whole request; latencies and throughput are of whole answers.
    """
    from rich.console import Console

    from oxibonsai.loadtest import report
    from oxibonsai.loadtest.schedule import ClosedLoop, OpenLoop

    if raw and json_file is None:
        raise RequestError("--raw goes into the JSON: give --json too")
    if plot_file is not None:
        require_matplotlib()
    for place in (json_file, plot_file):
        if place is not None:
            make_room(place)  # before minutes of load whose figures could not be kept
    if not concurrency and not rate:
        concurrency = [1, 4, 8, 16]
    loads = [*map(ClosedLoop, concurrency or ()), *(OpenLoop(r, seed) for r in rate or ())]
    settings, levels = asyncio.run(_run(loads, seed, **options))
    if json_file is not None:
        text = json.dumps(report.as_json(settings, levels, raw), indent=2)
        with written_whole(json_file) as file:
            file.write(f"{text}\n".encode())
    if plot_file is not None:
        report.plot(levels, plot_file)
    if json_file is None or not is_standard_output(json_file):
        Console().print(report.tables(levels), soft_wrap=True)
    if all(sum(level.figures.errors.values()) == level.figures.requests for level in levels):
        raise OxiBonsaiError("no request was answered")


async def _run(
    loads: list[Any],
    seed: int,
    *,
    url: str,
    model: str | None,
    api_key: str | None,
    requests: int | None,
    duration: float | None,
    warmup: int,
    prompt_tokens: int | None,
    max_tokens: int,
    ignore_eos: bool,
    prompts: Path | None,
    slo_ttft_ms: float | None,
    slo_tpot_ms: float | None,
    timeout: float,
) -> tuple[dict[str, Any], list[Any]]:
    from oxibonsai.loadtest.client import ChatClient
    from oxibonsai.loadtest.prompts import from_file, made_up
    from oxibonsai.loadtest.run import run_levels
    from oxibonsai.loadtest.schedule import Limit
    from oxibonsai.loadtest.statistics import Objectives

    if prompts is not None and prompt_tokens is not None:
        raise RequestError("prompts come from --prompts or have --prompt-tokens: give one")
    limit = Limit(32 if requests is None and duration is None else requests, duration)
    length = 256 if prompt_tokens is None else prompt_tokens
    asked = made_up(length, seed) if prompts is None else from_file(prompts)
    objectives = Objectives(_seconds(slo_ttft_ms), _seconds(slo_tpot_ms))
    async with ChatClient(url, api_key=api_key, timeout=timeout) as client:
        model = model or await client.first_model()
        body = {"model": model, "max_tokens": max_tokens, "temperature": 0}
        if ignore_eos:
            body["ignore_eos"] = True
        expected = (limit.requests or 0) * len(loads)  # unknown where time is the limit
        with step_progress(f"{model} at {url}", "answers") as progress:
            levels = await run_levels(
                client,
                loads,
                limit=limit,
                prompts=asked,
                body=body,
                warmup=warmup,
                objectives=objectives,
                answered=lambda load, done: progress(done, max(expected, done), str(load)),
            )
    settings = {
        "url": url,
        "request": body,
        "prompts": str(prompts) if prompts else {"tokens": length, "seed": seed},
        "requests": limit.requests,
        "duration_s": limit.seconds,
        "warmup": warmup,
        "slo_ttft_ms": slo_ttft_ms,
        "slo_tpot_ms": slo_tpot_ms,
    }
    return settings, levels


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
