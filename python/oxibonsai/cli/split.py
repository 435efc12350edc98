"""``oxibonsai split``: a model file to shards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFolder, file_facts, written_text
from oxibonsai.cli.progress import byte_progress
from oxibonsai.sources import resolve
from oxibonsai.split import split as split_file

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def byte_size(text: str) -> int:
    """Return the bytes of ``2G``, ``500M`` and the like, in powers of 1000, as llama.cpp's splitter has."""
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)B?", text.upper(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise click.BadParameter(f"{text!r} is no size above zero like 2G or 500M")
    return int(match[1]) * _UNITS[match[2]]


@click.command(cls=Command)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=OutputFolder())
@click.option(
    "--max-size",
    "--split-max-size",
    "max_size",
    metavar="SIZE",
    help="Largest shard, like 2G or 500M (powers of 1000); a larger tensor has one to itself.",
)
@click.option(
    "--max-tensors",
    "--split-max-tensors",
    "max_tensors",
    metavar="N",
    type=click.IntRange(min=1),
    help="Most in a shard.",
)
@json_option
def split(
    source: str, out: Path, max_size: str | None, max_tensors: int | None, as_json: bool
) -> None:
    """Cut the model IN into shards OUT-0000i-of-0000n.gguf, which llama.cpp opens too."""
    if (max_size is None) == (max_tensors is None):
        raise click.UsageError("give one of --max-size and --max-tensors")
    max_bytes = None if max_size is None else byte_size(max_size)
    path = resolve(source)
    with byte_progress("Splitting") as progress:
        made = split_file(
            path, out, max_bytes=max_bytes, max_tensors=max_tensors, progress=progress
        )
    if as_json:
        click.echo(json.dumps({"files": [file_facts(shard) for shard in made]}))
        return
    for shard in made:
        size = file_facts(shard)["bytes"]
        over = size is not None and max_bytes is not None and size > max_bytes
        note = f", more than {max_size}: a tensor is that large" if over else ""
        click.echo(f"{written_text(shard)}{note}")
