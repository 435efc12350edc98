"""``oxibonsai convert``: a Hugging Face model to a GGUF file."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from oxibonsai.convert import TYPES
from oxibonsai.convert import convert as convert_folder
from oxibonsai.sources.model_folder import model_folder


@click.command()
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--type",
    "dtype",
    type=click.Choice(list(TYPES)),
    default="f16",
    show_default=True,
    help="Of matrices; vectors stay f32.",
)
def convert(source: str, out: Path, dtype: str) -> None:
    """Make the GGUF file OUT of IN: a folder with safetensors, hf:org/repo or pip:package."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("Converting"), BarColumn(), DownloadColumn())
    # A temporary folder's name, or that of a revision in a cache, says nothing.
    remote = source.startswith(("pip:", "hf:"))
    name = source.partition(":")[2].partition("==")[0].rpartition("/")[2] if remote else ""
    with (
        model_folder(source) as folder,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        convert_folder(folder, out, dtype=dtype, name=name, progress=progress)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
