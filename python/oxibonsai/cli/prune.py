"""``oxibonsai prune``: a model with weights set to zero, or with fewer layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option, load_engine, quant_type_option, threads_option
from oxibonsai.cli.output import OutputFile, say_written, warn, written_text
from oxibonsai.cli.perplexity import check_windows, chunks_option, read_text
from oxibonsai.cli.progress import byte_progress
from oxibonsai.devices import default_threads
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.evaluate import Estimate, Window, cut_windows, measure_perplexity, text_tokens
from oxibonsai.evaluate.windows import MIN_CTX_SIZE
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import is_replaced, make_room
from oxibonsai.imatrix import Imatrix, collect, read_imatrix
from oxibonsai.loading import open_model
from oxibonsai.prune import (
    STRUCTURES,
    DroppedLayers,
    Influences,
    PrunedWeights,
    Sparsity,
    check_droppable,
    drop_layers,
    measure_influences,
    plan_pruned,
    prune_weights,
)
from oxibonsai.quantize import Loss, Plan, find_mix, write

_MAGNITUDE, _WANDA, _SHORTGPT = "magnitude", "wanda", "shortgpt"
_HALF = 0.5
_CTX_SIZE = 512
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_TABLE_WIDTH = 120  # columns, of a table that no terminal cuts


def _layers(_: click.Context, __: click.Parameter, text: str | None) -> list[int] | None:
    """Return the numbers in ``20,21``, llama-quantize's list of layers."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise click.BadParameter(f"{text!r} is no list of layers, such as 20,21")
    return [int(part) for part in parts]


@click.command(cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("out", metavar="OUT", type=OutputFile())
@quant_type_option
@click.option(
    "--method",
    type=click.Choice([_MAGNITUDE, _WANDA, _SHORTGPT]),
    help="magnitude: the smallest weights; wanda: those that change the outputs least, for which it needs "
    "--calibration or --imatrix; shortgpt: the layers with the least influence, with --drop-layers.",
)
@click.option(
    "--sparsity",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of the weights that become zero. Default: 0.5.",
)
@click.option(
    "--mask-structure",
    type=click.Choice(STRUCTURES),
    help="Half of each 4 or 8 neighbours in a row. Default: anywhere.",
)
@click.option(
    "--ignore",
    "ignored",
    metavar="REGEX",
    multiple=True,
    help="Leave matrices alone in whose name the regular expression is found; may be repeated.",
)
@click.option("--drop-layers", type=click.IntRange(1), metavar="N", help="Layers to leave out.")
@click.option(
    "--prune-layers",
    metavar="N,N...",
    callback=_layers,
    help="Leave out these layers, the first is 0; in place of a method.",
)
@click.option(
    "--calibration",
    type=_FILE,
    metavar="TEXT",
    help="A text, in UTF-8, over which inputs and influences are measured.",
)
@click.option(
    "--imatrix",
    "imatrix_path",
    type=_FILE,
    help="The inputs for wanda, from oxibonsai imatrix or llama-imatrix, in place of --calibration.",
)
@click.option(
    "--held-out",
    type=_FILE,
    metavar="TEXT",
    help="A text, in UTF-8, whose perplexity is measured before and after.",
)
@click.option(
    "--ctx-size",
    "-c",
    type=click.IntRange(MIN_CTX_SIZE),
    help=f"Tokens of a window of either text; each is read from an empty context. Default: {_CTX_SIZE}.",
)
@chunks_option
@click.option(
    "--type", "type_name", metavar="TYPE", help="Of matrices, as of quantize. Default: as they are."
)
@threads_option
@json_option
def prune(
    model: str,
    out: Path,
    quant_type: str,
    method: str | None,
    calibration: Path | None,
    imatrix_path: Path | None,
    held_out: Path | None,
    ctx_size: int | None,
    chunks: int | None,
    type_name: str | None,
    threads: int | None,
    as_json: bool,
    **choices: Any,
) -> None:
    """Write MODEL as the GGUF file OUT with weights set to zero, or without some layers.

    MODEL is a GGUF file, a folder, hf:org/repo or pip:package.
    """
    given = {name for name, value in choices.items() if value}
    given |= {"calibration"} if calibration else set()
    given |= {"imatrix"} if imatrix_path else set()
    _check_given(method, given)
    if not (calibration or held_out) and (ctx_size or chunks):
        raise RequestError("--ctx-size and --chunks are of --calibration and --held-out: give one")
    if held_out and not is_replaced(make_room(out, in_new_folder=False)):
        raise RequestError(f"{out} can't be read again, which --held-out needs: name a file")

    def read_texts(path: str) -> _Texts:
        size = ctx_size or _CTX_SIZE
        engine = load_engine(path, quant_type, ctx_size=size, parallel=1, threads=threads)
        check_windows(engine, size, f"give --ctx-size {engine.ctx_size} or less")
        return _Texts(engine, size, chunks)

    source = open_model(model, quant_type)
    _check_choices(source, method, choices, type_name)
    report: dict[str, Any] = {"method": method or "layers"}
    texts = read_texts(model) if calibration or held_out else None
    if texts is not None and held_out is not None:
        report["perplexity_before"] = asdict(texts.perplexity(held_out))
    pruned: PrunedWeights | DroppedLayers
    if method in (_MAGNITUDE, _WANDA):
        sparsity = _sparsity(choices)
        imatrix = None if imatrix_path is None else read_imatrix(imatrix_path)
        if texts is not None and calibration is not None:
            imatrix = texts.imatrix(calibration)
        pruned = prune_weights(source, sparsity, imatrix=imatrix, ignored=choices["ignored"])
        report |= {"mask_structure": sparsity.structure or None}
    else:
        dropped = choices["prune_layers"]
        if texts is not None and calibration is not None:
            influences = texts.influences(calibration)
            dropped = influences.lowest(choices["drop_layers"])
            report |= {"influences": influences.values, "tokens": influences.tokens}
        pruned = drop_layers(source, dropped)
        report |= {"dropped_layers": sorted(set(dropped))}
    if texts is not None:
        texts.engine.close()
        texts = None  # before the new file is opened beside it
    plan = plan_pruned(pruned, source.file, type_name)
    warn(plan.warnings())
    with byte_progress("Writing") as progress:
        losses = write(plan, out, threads=threads or default_threads(), progress=progress)
    report |= _facts(plan, pruned, losses)
    if held_out is not None:
        texts = read_texts(str(out))
        report["perplexity"] = asdict(texts.perplexity(held_out))
        texts.engine.close()
    if as_json:
        say_written(out, True, **report)
        return
    _show(report)
    click.echo(written_text(out))


# The options of each method, and those of which it needs one.
_ZEROS = {"sparsity", "mask_structure", "ignored"}
_OPTIONS: dict[str | None, tuple[set[str], tuple[set[str], ...]]] = {
    _MAGNITUDE: (_ZEROS, ()),
    _WANDA: (_ZEROS | {"calibration", "imatrix"}, ({"calibration", "imatrix"},)),
    _SHORTGPT: ({"drop_layers", "calibration"}, ({"drop_layers"}, {"calibration"})),
    None: ({"prune_layers"}, ({"prune_layers"},)),
}


def _check_given(method: str | None, given: set[str]) -> None:
    """Refuse options that a method does without, and ask for those that it needs."""
    allowed, needed = _OPTIONS[method]
    named = f"--method {method}" if method else "--prune-layers"
    if method is None and not given & {"prune_layers"}:
        raise RequestError("say what to prune: give --method, or --prune-layers")
    if wrong := sorted(given - allowed):
        raise RequestError(f"{_option(wrong[0])} does not go with {named}")
    for some in needed:
        if len(given & some) != 1:
            raise RequestError(f"{named} needs {' or '.join(map(_option, sorted(some)))}")


def _check_choices(
    source: Checkpoint, method: str | None, choices: Mapping[str, Any], type_name: str | None
) -> None:
    """Refuse, before minutes of work, what no measurement makes right."""
    if type_name is not None:
        find_mix(type_name)
    if method == _SHORTGPT:
        check_droppable(source, choices["drop_layers"])
    elif method is None:
        drop_layers(source, choices["prune_layers"])
    else:
        prune_weights(source, _sparsity(choices), ignored=choices["ignored"])


def _sparsity(choices: Mapping[str, Any]) -> Sparsity:
    return Sparsity(choices["sparsity"] or _HALF, choices["mask_structure"] or "")


def _option(name: str) -> str:
    return "--ignore" if name == "ignored" else "--" + name.replace("_", "-")


@dataclass(frozen=True)
class _Texts:
    """Runs a model over windows of texts.

    Attributes:
        engine: The model.
        ctx_size: Tokens of each.
        chunks: Windows at most; None: all.
    """

    engine: Engine
    ctx_size: int
    chunks: int | None

    def _windows(self, text: Path) -> list[Window]:
        tokens = text_tokens(self.engine.tokenizer, read_text(text))
        bos = self.engine.tokenizer.vocabulary.leading_bos
        return cut_windows(tokens, self.ctx_size, bos, chunks=self.chunks)

    def perplexity(self, text: Path) -> Estimate:
        """Return how well the model predicts a text."""
        windows = self._windows(text)
        with step_progress("Measuring", "windows") as progress:
            return measure_perplexity(
                self.engine,
                windows,
                progress=lambda done, ppl: progress(done, len(windows), f"perplexity {ppl:.4f}"),
            ).ppl

    def imatrix(self, text: Path) -> Imatrix:
        """Return the mean squares of the inputs of the model's matrices."""
        windows = [w.inputs for w in self._windows(text)]
        with step_progress("Measuring inputs", "windows") as progress:
            for found in collect(self.engine, windows, datasets=[text.name]):
                progress(found.chunk_count, len(windows), "")
        return found

    def influences(self, text: Path) -> Influences:
        """Return the influence of the model's layers."""
        windows = [w.inputs for w in self._windows(text)]
        with step_progress("Measuring layers", "windows") as progress:
            for found in measure_influences(self.engine, windows):
                progress(found.windows, len(windows), "")
        return found


def _facts(
    plan: Plan, pruned: PrunedWeights | DroppedLayers, losses: Mapping[str, Loss]
) -> dict[str, Any]:
    """Return what was written: zeros of each pruned tensor, and what encoding lost besides."""
    errors = {name: loss.relative for name, loss in losses.items() if loss.total}
    facts: dict[str, Any] = {"relative_errors": errors}
    if isinstance(pruned, PrunedWeights):
        facts["tensors"] = [
            {
                "name": c.tensor.name,
                "shape": list(c.tensor.shape),
                "type": c.type.name,
                "zeros": pruned.zeros[c.tensor.name],
                "sparsity": pruned.zeros[c.tensor.name] / c.tensor.count,
            }
            for c in plan.choices
            if c.tensor.name in pruned.pruned
        ]
        weights = sum(c.tensor.count for c in plan.choices if c.tensor.name in pruned.pruned)
        facts["sparsity"] = sum(pruned.zeros.values()) / weights
    return facts


def _show(report: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    if "tensors" in report:
        for title in ("tensor", "shape", "type"):
            table.add_column(title, no_wrap=True)
        table.add_column("zeros", justify="right")
        for t in report["tensors"]:
            shape = " x ".join(map(str, t["shape"]))
            table.add_row(t["name"], shape, t["type"], f"{t['sparsity']:.2%}")
    elif "influences" in report:
        for title in ("layer", "influence", ""):
            table.add_column(title, justify="right")
        for i, value in enumerate(report["influences"]):
            table.add_row(str(i), f"{value:.4f}", "dropped" * (i in report["dropped_layers"]))
    if table.columns:
        console = Console()
        console = console if console.is_terminal else Console(width=_TABLE_WIDTH)
        console.print(table)
    if "sparsity" in report:
        click.echo(
            f"{report['sparsity']:.2%} of the weights of {len(report['tensors'])} matrices are zero"
        )
    else:
        click.echo(f"without layers {', '.join(map(str, report['dropped_layers']))}")
    for name, error in report["relative_errors"].items():
        click.echo(f"{name}: relative error of encoding {error:.4f}")
    if "perplexity" in report:
        before, after = report["perplexity_before"], report["perplexity"]
        texts = (f"{e['value']:.4f} ± {e['error']:.4f}" for e in (before, after))
        click.echo("PPL = {} before, {} after".format(*texts))
