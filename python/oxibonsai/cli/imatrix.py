"""``oxibonsai imatrix``: which columns of a model's weights matter most for a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.model_choice import model_argument
from oxibonsai.cli.options import (
    json_option,
    load_engine,
    lora_options,
    machine_options,
    model_options,
)
from oxibonsai.cli.output import OutputFile, say_written
from oxibonsai.cli.perplexity import check_windows, chunks_option, read_text
from oxibonsai.engine import Engine
from oxibonsai.evaluate import cut_windows, text_tokens
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import is_replaced, make_room
from oxibonsai.imatrix import Imatrix, collect, write_imatrix


@click.command(cls=Command)
@model_argument
@model_options
@click.option(
    "--file",
    "-f",
    required=True,
    type=click.Path(path_type=Path),
    help="The text, in UTF-8: like what the model will be used for.",
)
@click.option(
    "--output",
    "--output-file",
    "-o",
    "out",
    default="imatrix.gguf",
    show_default=True,
    metavar="OUT",
    type=OutputFile(),
    help="The GGUF file to write; - is standard output.",
)
@click.option(
    "--ctx-size",
    "-c",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Tokens of a window; each is read from an empty context.",
)
@chunks_option
@click.option(
    "--output-frequency",
    "-ofreq",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Write the file every so many windows, so that little is lost; 0: at the end alone.",
)
@click.option(
    "--process-output",
    is_flag=True,
    help="Have an entry for the output matrix too; llama-quantize does without.",
)
@lora_options
@machine_options
@json_option
def imatrix(
    model: str | None,
    quant_type: str,
    file: Path,
    out: Path,
    ctx_size: int,
    chunks: int | None,
    output_frequency: int,
    process_output: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compute an importance matrix of a model, which quantize and llama-quantize take."""
    text = read_text(file)
    make_room(out, in_new_folder=False)
    engine = load_engine(model, quant_type, ctx_size=ctx_size, parallel=1, **options)
    check_windows(engine, ctx_size, f"give --ctx-size {engine.ctx_size} or less")
    windows = _windows(engine, text, ctx_size, chunks)
    found = collect(engine, windows, datasets=[file.name], process_output=process_output)
    done = _write_as_it_grows(found, len(windows), out, output_frequency)
    if as_json:
        say_written(out, True, weights=len(done.entries), windows=done.chunk_count)
        return
    click.echo(
        f"{out}: {len(done.entries)} weights, {done.chunk_count} windows of {ctx_size} tokens"
    )


def _windows(engine: Engine, text: str, size: int, chunks: int | None) -> list[tuple[int, ...]]:
    """Return llama-imatrix's windows: side by side, each with a bos where the tokenizer adds one."""
    bos = engine.tokenizer.vocabulary.leading_bos
    tokens = text_tokens(engine.tokenizer, text)
    return [w.inputs for w in cut_windows(tokens, size, bos, chunks=chunks)]


def _write_as_it_grows(found: Iterator[Imatrix], total: int, out: Path, frequency: int) -> Imatrix:
    """Write the file now and then and at the end; an interrupt keeps the windows that are done."""
    done: Imatrix | None = None
    try:
        with step_progress("Collecting", "windows") as progress:
            for done in found:
                progress(done.chunk_count, total, "")
                if frequency and done.chunk_count % frequency == 0 and is_replaced(out):
                    write_imatrix(done, out)
        assert done is not None  # there is at least one window
        write_imatrix(done, out)
    except KeyboardInterrupt:
        if done is not None:
            write_imatrix(done, out)
            click.echo(f"{out} holds the first {done.chunk_count} of {total} windows", err=True)
        raise
    return done
