"""``oxibonsai embed``: vectors of texts."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import engine_options, json_option, load_engine, model_options
from oxibonsai.cli.prompt import escape_option, file_option, prompt_option, read_texts
from oxibonsai.engine.pooling import POOLINGS


@click.command(cls=Command)
@model_options
@click.argument("texts", nargs=-1, metavar="TEXT...")
@prompt_option("Texts, one a line, as llama.cpp.", hidden=True)
@escape_option
@click.option(
    "--embd-separator", metavar="TEXT", default="\n", hidden=True, help="What is between them."
)
@file_option("Read texts from a file, one a line.")
@click.option("--pooling", type=click.Choice(POOLINGS), help="Default: what the model is made for.")
@click.option(
    "--dimensions", type=click.IntRange(1), help="Keep so many values, from the first on."
)
@click.option(
    "--truncate", type=click.IntRange(1), metavar="N", help="Cut texts to so many tokens."
)
@click.option("--no-normalize", is_flag=True, help="Leave the lengths of vectors as they are.")
@click.option(
    "--embd-normalize",
    type=click.Choice(["-1", "2"]),
    hidden=True,
    help="llama.cpp's: -1 leaves the lengths, 2 makes them 1.",
)
@engine_options
@json_option
def embed(
    model: str | None,
    quant_type: str,
    texts: tuple[str, ...],
    file: Path | None,
    pooling: str | None,
    dimensions: int | None,
    truncate: int | None,
    no_normalize: bool,
    prompt: str | None,
    embd_separator: str,
    embd_normalize: str | None,
    as_json: bool,
    **options: object,
) -> None:
    """Print the vector of each text: one line a text, its values apart by spaces."""
    if prompt is not None:
        texts = (*texts, *filter(None, prompt.split(embd_separator)))
    wanted = read_texts(texts, file, "texts")
    engine = load_engine(model, quant_type, **options)
    vectors = engine.embed(
        wanted,
        pooling=pooling,
        normalize=not (no_normalize or embd_normalize == "-1"),
        dimensions=dimensions,
        truncate=truncate,
    )
    if as_json:
        click.echo(json.dumps({"embeddings": [[float(v) for v in row] for row in vectors]}))
        return
    for row in vectors:
        click.echo(" ".join(f"{v:.9g}" for v in row))
