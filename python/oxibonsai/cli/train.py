"""``oxibonsai train``: from texts to a model whose weights are binary or ternary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFolder, say_written, written_text
from oxibonsai.cli.settings_options import settings_options
from oxibonsai.errors import UnsupportedError
from oxibonsai.train.settings import NetworkShape, TrainSettings, settings_choices

_FILE = click.Path(path_type=Path)

_SHAPE = {
    "hidden_size": "Width of the residual stream.",
    "layers": "Layers.",
    "heads": "Heads of queries.",
    "kv_heads": "Heads of keys and values.",
    "head_dim": "Width of a head.",
    "ffn_size": "Width inside the feed-forward part.",
}
_LEARNING = {
    "weight_format": "Ternary in groups of 64 or 128, binary in groups of 128, or floats.",
    "steps": "Updates.",
    "batch": "Sequences of an update.",
    "accumulate": "Parts of a batch.",
    "context": "Tokens of a sequence.",
    "optimizer": "Of the matrices of the layers.",
    "learning_rate": "Of AdamW.",
    "muon_learning_rate": "Of Muon.",
    "weight_decay": "Of matrices.",
    "schedule": "Of the learning rates.",
    "warmup": "Steps.",
    "decay": "Share of wsd's fall.",
    "clip": "Of the gradient's norm.",
    "distill": "Share of the teacher.",
    "temperature": "Of distillation.",
    "precision": "Of the network's products.",
    "compile": "With torch.compile (needs a C++ compiler).",
    "seed": "Of the first weights and the order of the data.",
    "save_every": "Steps to a checkpoint.",
    "keep": "Checkpoints; 0 keeps all.",
}
_NAMES = {"weight_format": "--type", "muon_learning_rate": "--muon-lr"}


def shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the sizes of a network of random weights; with ``--init`` they are read."""
    defaults = {f.name: f.default for f in fields(NetworkShape)}
    for name, text in reversed(_SHAPE.items()):
        option = click.option(
            f"--{name.replace('_', '-')}",
            type=click.IntRange(min=1),
            show_default=str(defaults[name]),
            help=text,
        )
        command = option(command)
    return command


@click.command(cls=Command)
@click.argument("texts", metavar="TEXTS", type=_FILE)
@click.argument("out", metavar="OUT", type=OutputFolder())
@click.option(
    "--tokenizer", type=_FILE, required=True, help="Folder with tokenizer.json and its config."
)
@click.option("--held-out", type=_FILE, help="Texts to measure at each checkpoint.")
@click.option("--init", type=_FILE, help="Begin with these weights: a model folder or step-N.pt.")
@click.option("--teacher", type=_FILE, help="Learn its logits too: a model folder or step-N.pt.")
@click.option(
    "--resume", is_flag=True, help="Go on from OUT's newest checkpoint; the rest as before."
)
@shape_options
@settings_options(TrainSettings, _LEARNING, names=_NAMES, choices=settings_choices())
@json_option
def train(
    texts: Path,
    out: Path,
    tokenizer: Path,
    held_out: Path | None,
    init: Path | None,
    teacher: Path | None,
    resume: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a Qwen3 network on TEXTS (JSON lines with "text"); OUT becomes the folder of the run.

    OUT gets log.csv, loss.png, checkpoints, the folder model and the same model as a GGUF file.
    """
    require_extra()
    from oxibonsai import train as training

    sizes = {name: size for name in _SHAPE if (size := options.pop(name)) is not None}
    shape = NetworkShape(**sizes) if sizes else None
    sources = training.Sources(texts, tokenizer, held_out, init, teacher)
    settings = TrainSettings(**options)
    result = training.train(out, sources, settings, shape, resume=resume)
    if as_json:
        say_written(result.gguf, True, perplexity=result.perplexity)
        return
    click.echo(written_text(result.gguf))
    if result.perplexity is not None:
        click.echo(f"held-out perplexity {result.perplexity:.3f}")


def require_extra() -> None:
    """Say which extra is missing, before anything else is read.

    Raises:
        UnsupportedError: A package of the extra is not installed.
    """
    missing = [name for name in ("torch", "transformers", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"training needs {', '.join(missing)}: install with pip install 'oxibonsai[train]'"
        )
