"""``oxibonsai merge``: shards to one model file."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFile, say_written
from oxibonsai.cli.progress import byte_progress
from oxibonsai.sources import resolve
from oxibonsai.split import merge as merge_files


@click.command(cls=Command)
@click.argument("sources", metavar="IN...", nargs=-1, required=True)
@click.argument("out", metavar="OUT", type=OutputFile())
@json_option
def merge(sources: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Join shards into the file OUT: IN is one of them, which stands for its set, or all of them."""
    paths = [resolve(sources[0])] if len(sources) == 1 else [Path(s) for s in sources]
    with byte_progress("Merging") as progress:
        merge_files(paths, out, progress=progress)
    say_written(out, as_json)
