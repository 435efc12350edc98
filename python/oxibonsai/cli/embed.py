"""``oxibonsai embed``: vectors of texts."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from oxibonsai.cli.options import engine_options, json_option, load_engine, model_options
from oxibonsai.cli.prompt import read_texts
from oxibonsai.engine.pooling import POOLINGS


@click.command()
@model_options
@click.argument("texts", nargs=-1, metavar="TEXT...")
@click.option(
    "--file", "-f", type=click.Path(path_type=Path), help="Read texts from a file, one a line."
)
@click.option("--pooling", type=click.Choice(POOLINGS), help="Default: what the model is made for.")
@click.option(
    "--dimensions", type=click.IntRange(1), help="Keep so many values, from the first on."
)
@click.option(
    "--truncate", type=click.IntRange(1), metavar="N", help="Cut texts to so many tokens."
)
@click.option("--no-normalize", is_flag=True, help="Leave the lengths of vectors as they are.")
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
    as_json: bool,
    **options: object,
) -> None:
    """Print the vector of each text: one line a text, its values apart by spaces."""
    wanted = read_texts(texts, file, "texts")
    engine = load_engine(model, quant_type, **options)
    vectors = engine.embed(
        wanted,
        pooling=pooling,
        normalize=not no_normalize,
        dimensions=dimensions,
        truncate=truncate,
    )
    if as_json:
        click.echo(json.dumps({"embeddings": [[float(v) for v in row] for row in vectors]}))
        return
    for row in vectors:
        click.echo(" ".join(f"{v:.9g}" for v in row))
