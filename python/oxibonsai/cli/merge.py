"""``oxibonsai merge``: shards to one model file."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from oxibonsai.cli.byte_progress import byte_progress
from oxibonsai.sources import resolve
from oxibonsai.split import merge as merge_files


@click.command()
@click.argument("sources", metavar="IN...", nargs=-1, required=True)
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, dir_okay=False))
def merge(sources: tuple[str, ...], out: Path) -> None:
    """Join shards into the file OUT: IN is one of them, which stands for its set, or all of them."""
    paths = [resolve(sources[0])] if len(sources) == 1 else [Path(s) for s in sources]
    with byte_progress("Merging") as progress:
        merge_files(paths, out, progress=progress)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
