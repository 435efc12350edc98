"""``oxibonsai bench speculation``: what drafts bring on a running server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import rich_click as click

from oxibonsai.cli.bench_serve import numbers, server_options
from oxibonsai.cli.options import json_option

if TYPE_CHECKING:
    from rich.table import Table

    from oxibonsai.loadtest.speculation import Cell


@click.command(short_help="Measure speculation on a running server.")
@server_options
@click.option("--lengths", callback=numbers(int), default="1,2,4,8", show_default=True,
              help="Tokens of drafts.")  # fmt: skip
@click.option("--thresholds", callback=numbers(float), default="0.5,0.7,0.85,0.95",
              show_default=True,
              help="Probabilities below which a draft ends; drafts of n-grams have none.")  # fmt: skip
@click.option("--max-tokens", "-n", type=click.IntRange(2), default=96, show_default=True)
@click.option("--rounds", "-r", type=click.IntRange(1), default=3, show_default=True)
@json_option
def speculation(
    url: str,
    model: str | None,
    api_key: str | None,
    timeout: float,
    lengths: list[int],
    thresholds: list[float],
    max_tokens: int,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure what speculation brings on a server that was started with --speculate or --draft-model.

    Every length of drafts with every threshold, in turn with plain decoding: the share of drafted
    tokens that were accepted, and the speed as a multiple of that without drafts. Texts are the same.
    """
    from rich.console import Console

    report = asyncio.run(
        _run(url, model, api_key, timeout, lengths, thresholds, max_tokens, rounds)
    )
    if as_json:
        cells = [
            {**asdict(c), "acceptance": c.acceptance, "speed": c.speed} for c in report["cells"]
        ]
        click.echo(json.dumps({**report, "cells": cells}))
        return
    Console().print(f"{report['model']} at {url}: {report['speculation']}")
    Console().print(_table(report["cells"]), soft_wrap=True)


async def _run(
    url: str,
    model: str | None,
    api_key: str | None,
    timeout: float,
    lengths: list[int],
    thresholds: list[float],
    tokens: int,
    rounds: int,
) -> dict[str, Any]:
    from rich.console import Console

    from oxibonsai.loadtest.client import ChatClient
    from oxibonsai.loadtest.speculation import grid, measure, speculation_of

    async with ChatClient(url, api_key=api_key, timeout=timeout) as client:
        model = model or await client.first_model()
        kind = await speculation_of(client, model)
        with Console(stderr=True).status(f"{model} at {url}") as status:
            cells = await measure(
                client,
                grid(kind, lengths, thresholds),
                model=model,
                tokens=tokens,
                rounds=rounds,
                began=lambda what: status.update(f"{model} at {url}: {what}"),
            )
    return {"url": url, "model": model, "speculation": kind, "max_tokens": tokens,
            "rounds": rounds, "cells": cells}  # fmt: skip


def _table(cells: list[Cell]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table("text", box=box.SIMPLE_HEAD)
    for head in ("draft", "threshold", "accepted", "tok/s", "plain tok/s", "speed"):
        table.add_column(head, justify="right")
    for cell in cells:
        table.add_row(
            cell.prompt,
            "adapted" if cell.length is None else str(cell.length),
            "-" if cell.threshold is None else f"{cell.threshold:g}",
            "-" if cell.acceptance is None else f"{cell.acceptance:.1%}",
            f"{cell.tok_s:.1f}",
            f"{cell.plain_tok_s:.1f}",
            f"{cell.speed:.2f}",
        )
    return table
