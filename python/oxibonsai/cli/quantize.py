"""``oxibonsai quantize``: a model in fewer bits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.calibration import CalibrationOptions, calibrate, calibration_options
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option, threads_option
from oxibonsai.cli.output import OutputFile, say_written, warn, written_text
from oxibonsai.cli.progress import byte_progress
from oxibonsai.devices import default_threads
from oxibonsai.imatrix import read_imatrix
from oxibonsai.loading import open_model
from oxibonsai.quantize import Loss, Plan, TypeRules, find_mix, make_plan, mix_names, write

_PIPE_WIDTH = 200  # columns, of a table that no terminal cuts


def type_pattern(text: str) -> tuple[str, str]:
    """Split ``REGEX=TYPE`` into its two parts."""
    pattern, equals, type_name = text.rpartition("=")
    if not equals or not pattern or not type_name:
        raise click.BadParameter(f"{text!r} is not REGEX=TYPE, such as 'ffn_down=Q6_K'")
    return pattern, type_name


def _patterns(
    ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, str]]:
    return [type_pattern(v) for v in values]


def _split_words(ctx: click.Context, words: tuple[str, ...]) -> tuple[str, Path, str, int | None]:
    """Return llama-quantize's arguments: IN, OUT, TYPE and the number of threads."""
    cores = None
    if len(words) > 2 and words[-1].isdecimal():
        words, cores = words[:-1], click.IntRange(1, 1024)(words[-1], ctx=ctx)
    if len(words) == 2:
        beside = Path(words[0]).parent / f"ggml-model-{words[1]}.gguf"
        words = (words[0], str(beside), words[1])
    if len(words) != 3:
        raise click.UsageError(
            f"quantize takes IN [OUT] TYPE [THREADS], and {len(words)} words are given", ctx
        )
    out: Path = OutputFile().convert(words[1], None, ctx)
    return words[0], out, words[2], cores


_NAMES = (
    f"TYPE is one of {', '.join(mix_names())}; Q3_K, Q4_K and Q5_K are their _M mixes, Q2_0 is Q2_0_g64 "
    "and PQ2_0 is Q2_0_g128. docs/quantize.md describes them."
)


@click.command(cls=Command, epilog=_NAMES)
@click.argument(
    "words",
    metavar="IN [OUT] TYPE [THREADS]",
    nargs=-1,
    required=True,
    shell_complete=lambda _, __, begun: [n for n in mix_names() if n.startswith(begun.upper())],
)
@click.option("--pure", is_flag=True, help="One type for all matrices, without a mix's exceptions.")
@click.option("--token-embedding-type", metavar="TYPE", help="Of the embeddings.")
@click.option(
    "--output-tensor-type",
    metavar="TYPE",
    help="Of the matrix that gives logits, also where that is the embeddings.",
)
@click.option(
    "--tensor-type",
    "patterns",
    metavar="REGEX=TYPE",
    multiple=True,
    callback=_patterns,
    help="Of matrices in whose name the regular expression is found. Can be given again; the last "
    "that matches counts, before all other options.",
)
@click.option(
    "--imatrix",
    "imatrix_path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Which columns matter, from oxibonsai imatrix or llama-imatrix. The smallest types need it, "
    "most others gain by it.",
)
@calibration_options
@click.option(
    "--allow-requantize", is_flag=True, help="Don't warn that the source is quantized already."
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@threads_option
@json_option
@click.pass_context
def quantize(
    ctx: click.RichContext,
    /,
    words: tuple[str, ...],
    pure: bool,
    token_embedding_type: str | None,
    output_tensor_type: str | None,
    patterns: list[tuple[str, str]],
    imatrix_path: Path | None,
    calibration: CalibrationOptions,
    allow_requantize: bool,
    dry_run: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write the model IN as the GGUF file OUT with its matrices in TYPE.

    IN is a GGUF file, any shard of a split one, a folder, hf:org/repo or pip:package. Without OUT,
    it is ggml-model-TYPE.gguf beside IN.
    """
    source, out, type_name, cores = _split_words(ctx, words)
    threads = threads or cores or default_threads()
    mix = find_mix(type_name)

    def rules(chosen: Sequence[tuple[str, str]] = ()) -> TypeRules:
        return TypeRules(
            mix,
            pure=pure,
            token_embedding=token_embedding_type,
            output=output_tensor_type,
            patterns=[*chosen, *patterns],
        )

    imatrix = None if imatrix_path is None else read_imatrix(imatrix_path)
    calibrated = None
    if calibration.wanted:
        calibrated = calibrate(source, rules, imatrix, calibration, threads, encode=not dry_run)
        plan = calibrated.plan
    else:
        plan = make_plan(open_model(source).file, rules(), imatrix)
    warn(plan.warnings(allow_requantize=allow_requantize))
    if dry_run:
        if as_json:
            click.echo(json.dumps(_plan_facts(plan)))
        else:
            _show_plan(plan)
        return
    with byte_progress("Quantizing") as progress:
        losses = write(
            plan,
            out,
            imatrix_name="" if imatrix_path is None else str(imatrix_path),
            encoded=None if calibrated is None else calibrated.encoded,
            threads=threads,
            progress=progress,
        )
    if as_json:
        errors = {name: loss.relative for name, loss in losses.items() if loss.total}
        say_written(out, True, bits_per_weight=plan.bits, relative_errors=errors)
        return
    _show_losses(plan, losses)
    click.echo(f"{written_text(out)}, {plan.bits:.2f} bits a weight")


def _plan_facts(plan: Plan) -> dict[str, Any]:
    tensors = [
        {
            "name": c.tensor.name,
            "shape": list(c.tensor.shape),
            "from": c.tensor.type_name,
            "to": c.type.name,
            "bytes_before": plan.file.tensor(c.tensor.name).nbytes,
            "bytes": c.nbytes,
        }
        for c in plan.choices
    ]
    return {"tensors": tensors, "bytes": plan.nbytes, "bits_per_weight": plan.bits}


def _show_plan(plan: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for title in ("tensor", "shape", "from", "to"):
        table.add_column(title, no_wrap=True)
    for title in ("bytes before", "after"):
        table.add_column(title, justify="right")
    for choice in plan.choices:
        tensor = choice.tensor
        before = plan.file.tensor(tensor.name).nbytes
        note = "" if choice.wanted is None else f" (for {choice.wanted})"
        shape = " x ".join(map(str, tensor.shape))
        sizes = (f"{before:,}", f"{choice.nbytes:,}")
        table.add_row(tensor.name, shape, tensor.type_name, choice.type.name + note, *sizes)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(table)
    before = sum(t.nbytes for t in plan.file.tensors)
    click.echo(f"{before:,} bytes become {plan.nbytes:,}: {plan.bits:.2f} bits a weight")


def _show_losses(plan: Plan, losses: Mapping[str, Loss]) -> None:
    """Print a line for each type: how many tensors, and how far their values moved."""
    counts = Counter(c.type.name for c in plan.choices)
    for name, count in sorted(counts.items()):
        kept = sum(c.type.name == name and c.kept for c in plan.choices)
        copied = f", {kept} of them copied" if kept else ""
        loss = losses.get(name, Loss())
        error = f"; relative error {loss.relative:.4f}" if loss.total else ""
        click.echo(f"{name}: {count} tensor{'s' if count > 1 else ''}{copied}{error}")
