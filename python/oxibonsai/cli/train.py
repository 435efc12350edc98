"""``oxibonsai train``: from texts to a model whose weights are binary or ternary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.errors import UnsupportedError

_FILE = click.Path(path_type=Path)


def shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Sizes of a network of random weights; with ``--init`` they are read."""
    sizes = (
        ("--hidden-size", "Width of the residual stream [256]."),
        ("--layers", "Layers [4]."),
        ("--heads", "Heads of queries [4]."),
        ("--kv-heads", "Heads of keys and values [2]."),
        ("--head-dim", "Width of a head [64]."),
        ("--ffn-size", "Width inside the feed-forward part [512]."),
    )
    for name, text in reversed(sizes):
        command = click.option(name, type=click.IntRange(min=1), help=text)(command)
    return command


def learning_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How to learn: the fields of ``TrainSettings``, which checks their ranges."""
    options = (
        click.option("--steps", type=int, default=1000, show_default=True, help="Updates."),
        click.option("--batch", type=int, default=16, show_default=True, help="Sequences of an update."),
        click.option(
            "--accumulate", type=int, default=1, show_default=True, help="Parts of a batch."
        ),
        click.option("--context", type=int, default=256, show_default=True, help="Tokens of a sequence."),
        click.option("--optimizer", type=click.Choice(["muon", "adamw"]), default="muon"),
        click.option(
            "--lr", "learning_rate", type=float, default=3e-3, show_default=True, help="Of AdamW."
        ),
        click.option(
            "--muon-lr", "muon_learning_rate", type=float, default=0.02, show_default=True,
            help="Of Muon, which has the matrices of the layers.",
        ),
        click.option("--weight-decay", type=float, default=0.1, show_default=True),
        click.option("--schedule", type=click.Choice(["cosine", "wsd"]), default="cosine"),
        click.option("--warmup", type=int, default=50, show_default=True, help="Steps."),
        click.option(
            "--decay", type=float, default=0.3, show_default=True, help="Share of wsd's fall."
        ),
        click.option(
            "--clip", type=float, default=1.0, show_default=True, help="Of the gradient's norm."
        ),
        click.option(
            "--distill", type=float, default=0.0, show_default=True, help="Share of the teacher."
        ),
        click.option(
            "--temperature", type=float, default=1.0, show_default=True, help="Of distillation."
        ),
        click.option(
            "--precision", type=click.Choice(["auto", "bfloat16", "float32"]), default="auto"
        ),
        click.option("--compile", is_flag=True, help="With torch.compile (needs a C++ compiler)."),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option(
            "--save-every", type=int, default=200, show_default=True, help="Steps to a checkpoint."
        ),
        click.option(
            "--keep", type=int, default=2, show_default=True, help="Checkpoints; 0 keeps all."
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("texts", metavar="TEXTS", type=_FILE)
@click.argument("out", metavar="OUT", type=_FILE)
@click.option(
    "--tokenizer", type=_FILE, required=True, help="Folder with tokenizer.json and its config."
)
@click.option("--held-out", type=_FILE, help="Texts to measure at each checkpoint.")
@click.option(
    "--type",
    "weight_format",
    type=click.Choice(["q2_0_g64", "pq2_0", "q1_0", "float"]),
    default="q2_0_g64",
    show_default=True,
    help="Ternary in groups of 64 or 128, binary in groups of 128, or floats.",
)
@click.option("--init", type=_FILE, help="Begin with these weights: a model folder or step-N.pt.")
@click.option("--teacher", type=_FILE, help="Learn its logits too: a model folder or step-N.pt.")
@click.option(
    "--resume", is_flag=True, help="Go on from OUT's newest checkpoint; the rest as before."
)
@shape_options
@learning_options
def train(
    texts: Path,
    out: Path,
    tokenizer: Path,
    held_out: Path | None,
    init: Path | None,
    teacher: Path | None,
    resume: bool,
    **options: Any,
) -> None:
    """Train a Qwen3 network on TEXTS (JSON lines with "text"); OUT becomes the folder of the run.

    OUT gets log.csv, loss.png, checkpoints, the folder model and the same model as a GGUF file.
    """
    require_extra()
    from oxibonsai import train as training

    names = [f.name for f in fields(training.NetworkShape)]
    sizes = {name: size for name in names if (size := options.pop(name)) is not None}
    shape = training.NetworkShape(**sizes) if sizes else None
    sources = training.Sources(texts, tokenizer, held_out, init, teacher)
    settings = training.TrainSettings(**options)
    result = training.train(out, sources, settings, shape, resume=resume)
    click.echo(f"{result.gguf}: {result.gguf.stat().st_size / 1e6:.1f} MB")
    if result.perplexity is not None:
        click.echo(f"held-out perplexity {result.perplexity:.3f}")


def require_extra() -> None:
    """Says which extra is missing, before anything else is read.

    Raises:
        UnsupportedError: A package of the extra is not installed.
    """
    missing = [name for name in ("torch", "transformers", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"training needs {', '.join(missing)}: install with pip install 'oxibonsai[train]'"
        )
