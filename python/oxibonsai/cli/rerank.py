"""``oxibonsai rerank``: documents sorted by how well they answer a query."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import engine_options, json_option, load_engine, model_options
from oxibonsai.cli.prompt import read_texts


@click.command(cls=Command)
@model_options
@click.option("--query", "-q", required=True, help="The query to compare the documents with.")
@click.argument("documents", nargs=-1, metavar="DOCUMENT...")
@click.option(
    "--file",
    "-f",
    type=click.Path(path_type=Path),
    help="Read documents from a file, one per line.",
)
@click.option("--top-n", type=click.IntRange(1), metavar="N", help="Print only the N best.")
@engine_options
@json_option
def rerank(
    model: str | None,
    quant_type: str,
    query: str,
    documents: tuple[str, ...],
    file: Path | None,
    top_n: int | None,
    as_json: bool,
    **options: object,
) -> None:
    """Sort documents by how well they answer a query.

    Prints the best first, one per line: its score and its text.
    """
    texts = read_texts(documents, file, "documents")
    engine = load_engine(model, quant_type, **options)
    found = engine.rerank(query, texts, top_n=top_n).documents
    if as_json:
        results = [{"index": d.index, "relevance_score": d.score} for d in found]
        click.echo(json.dumps({"results": results}))
        return
    for document in found:
        click.echo(f"{document.score:.9g}\t{texts[document.index]}")
