"""``oxibonsai merge-models``: one model of several, by mergekit."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFolder, say_written, warn
from oxibonsai.cli.progress import byte_progress
from oxibonsai.convert.target import check_dtype
from oxibonsai.errors import RequestError
from oxibonsai.merging import GGUF_SUFFIX
from oxibonsai.merging import merge_models as merge


@click.command("merge-models", cls=Command)
@click.argument("config", metavar="CONFIG.yaml", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=OutputFolder())
@click.option(
    "--type",
    "dtype",
    metavar="TYPE",
    default="auto",
    show_default=True,
    help="Of the matrices of a GGUF file, as of oxibonsai convert.",
)
@click.option(
    "--random-seed",
    "seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of methods that draw at random, such as dare_ties.",
)
@json_option
def merge_models(config: Path, out: Path, dtype: str, seed: int, as_json: bool) -> None:
    """Merge models by a configuration of mergekit.

    Models in it are folders, hub names, and also GGUF files, which are decoded. OUT is a new folder as
    mergekit writes it, or NAME.gguf.
    """
    check_dtype(dtype)
    if dtype != "auto" and out.suffix != GGUF_SUFFIX:
        raise RequestError(
            f"--type {dtype} is for a GGUF file: name OUT.gguf, or set dtype in {config}"
        )
    with byte_progress("Converting") as progress:
        warnings = merge(config, out, dtype=dtype, seed=seed, progress=progress)
    warn(warnings)
    say_written(out, as_json, warnings=warnings)
