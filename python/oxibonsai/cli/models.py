"""``oxibonsai models``: the published Bonsai models, and which of them this machine has room for."""

from __future__ import annotations

import json
from typing import Any

import rich_click as click

from oxibonsai import _core
from oxibonsai.cli.bench import read_bandwidth
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.devices import default_threads
from oxibonsai.files.machine import physical_memory
from oxibonsai.known_models.published import (
    CONTEXTS,
    PARTS,
    PUBLISHED,
    PublishedFile,
    PublishedPart,
)

_RESERVED = 2 << 30  # for the system and the values of a step
_SHORT, _LONG = CONTEXTS
_WIDTH = 140


@click.command(cls=Command)
@click.option("--all", "all_files", is_flag=True, help="List those too that are too large here.")
@json_option
def models(all_files: bool, as_json: bool) -> None:
    """List the published Bonsai models: file, memory, speed here, abilities and quality.

    Memory is the file with keys, values and recurrent state of one text of 8,192 and of 65,536 tokens.
    The speed, in tokens per second, is an estimate: what the measured memory bandwidth of this machine
    allows at most for one text; `oxibonsai bench MODEL` measures a model. A file whose size begins with ~
    could not be seen: it is computed.
    """
    memory, bandwidth = physical_memory(), read_bandwidth(_core.ThreadPool(default_threads()))
    listed = [_facts(file, memory, bandwidth) for file in PUBLISHED]
    if as_json:
        facts = {
            "memory_bytes": memory,
            "bandwidth_bytes_per_s": round(bandwidth),
            "models": listed,
            "parts": [_part_facts(part) for part in PARTS],
        }
        click.echo(json.dumps(facts))
        return
    from rich.console import Console
    from rich.table import Table

    # Averages over different sets of benchmarks can't be compared: docs/which_model.md names them.
    shown = [m for m in listed if all_files or m["fits"]]
    table = Table("model", "file", "8K", "64K", "tok/s", "can", "quality", box=None)
    for column in table.columns[:5]:
        column.no_wrap = True
    for m in shown:
        size = ("" if m["bytes_are_exact"] else "~") + _gb(m["bytes"])
        long = _gb(m["memory_bytes"][str(_LONG)]) if m["fits_long"] else "too large"
        table.add_row(
            f"{m['name']} {m['type']}", size, _gb(m["memory_bytes"][str(_SHORT)]), long,
            f"{m['tok_s_at_most']:.1f}", ", ".join(m["abilities"]), m["quality"],
        )  # fmt: skip
    console = Console()
    if not console.is_terminal:  # a file or another program reads whole lines
        console = Console(width=_WIDTH)
    console.print(table)
    fitting = [m for m in listed if m["fits"] and m["name"].startswith("Bonsai 2 ")]
    if fitting:
        repository = fitting[-1]["model"].removeprefix("hf:").partition(":")[0].removesuffix("-dev")
        click.echo(f"the largest that fits: oxibonsai chat -hf {repository}")
    sizes = {m["name"] for m in shown}
    for part in PARTS:
        if part.size.name in sizes:
            click.echo(f"{part.what}, {_gb(part.bytes)}: {part.option} {part.name}")
    rest = len(listed) - len(shown)
    left_out = f"; {rest} more need more memory (--all lists them)" if rest else ""
    click.echo(
        f"this machine: {_gb(memory)} of memory, read at {_gb(bandwidth)}/s{left_out}", err=True
    )


def _facts(file: PublishedFile, memory: int, bandwidth: float) -> dict[str, Any]:
    needed = {str(context): file.memory(context) for context in CONTEXTS}
    return {
        "name": file.size.name,
        "model": file.name,
        "weights": file.weights,
        "type": file.type,
        "file": file.file,
        "bytes": file.bytes,
        "bytes_are_exact": file.exact,
        "memory_bytes": needed,
        "fits": needed[str(_SHORT)] + _RESERVED <= memory,
        "fits_long": needed[str(_LONG)] + _RESERVED <= memory,
        "tok_s_at_most": round(file.tokens_per_second(bandwidth), 1),
        "abilities": list(file.size.abilities),
        "quality": file.quality,
    }


def _part_facts(part: PublishedPart) -> dict[str, Any]:
    return {
        "of": part.size.name, "name": part.name, "option": part.option, "what": part.what,
        "bytes": part.bytes,
    }  # fmt: skip


def _gb(count: float) -> str:
    return f"{count / 1e9:.2f} GB"
