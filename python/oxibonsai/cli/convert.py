"""``oxibonsai convert``: a Hugging Face model to a GGUF file."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from oxibonsai.cli.byte_progress import byte_progress
from oxibonsai.convert import TYPES
from oxibonsai.convert import convert as convert_folder
from oxibonsai.sources.model_folder import model_folder


@click.command()
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--type",
    "dtype",
    type=click.Choice(list(TYPES), case_sensitive=False),
    default="auto",
    show_default=True,
    help="Of matrices; vectors stay f32. auto loses nothing: each as it is stored. q1_0 to ptq1_0 are "
    "for weights that are binary or ternary already, which is checked.",
)
def convert(source: str, out: Path, dtype: str) -> None:
    """Make the GGUF file OUT of IN: a folder with safetensors, hf:org/repo or pip:package."""
    # A temporary folder's name, or that of a revision in a cache, says nothing.
    remote = source.startswith(("pip:", "hf:"))
    name = source.partition(":")[2].partition("==")[0].rpartition("/")[2] if remote else ""
    with model_folder(source) as folder, byte_progress("Converting") as progress:
        convert_folder(folder, out, dtype=dtype, name=name, progress=progress)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
