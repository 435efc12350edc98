"""Arguments and options that commands which train with transformers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import rich_click as click

from oxibonsai.cli.options import Command, apply, json_option
from oxibonsai.cli.output import OutputFolder
from oxibonsai.cli.settings_options import settings_options
from oxibonsai.finetune.settings import LearningSettings

LEARNING = {
    "epochs": "How often the data is read.",
    "steps": "Updates; 0: as many as the epochs take.",
    "batch": "Examples at once.",
    "accumulate": "Batches of an update.",
    "context": "Tokens of an example at most.",
    "learning_rate": "At its height.",
    "schedule": "Of the learning rate: linear, cosine, constant ...",
    "warmup": "Updates of the rise.",
    "weight_decay": "Of matrices.",
    "clip": "Of the gradient's norm.",
    "dtype": "Of what is computed.",
    "seed": "Of first values and the order of the data.",
    "save_every": "Updates to a checkpoint.",
    "keep": "Checkpoints.",
    "report_to": "Where transformers sends figures: tensorboard,wandb.",
}
_CHOICES = {"dtype": ("float32", "bfloat16")}
_FILE = click.Path(path_type=Path)


def learning_options(
    settings: type[LearningSettings],
    texts: Mapping[str, str],
    *,
    model: str = "MODEL",
    names: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds the model, the data, the folder of the run and all options.

    Args:
        settings: The command's settings.
        texts: The help of each of them, in their order.
        model: What the help calls the model.
        names: Options that are not the fields' own names.
        choices: Values of further fields that take few.
    """
    options = [
        click.argument("model", metavar=model),
        click.argument("data", metavar="DATA.jsonl", type=_FILE),
        click.argument("out", metavar="OUT", type=OutputFolder()),
        click.option("--held-out", type=_FILE, help="Examples that are measured, and not learnt."),
        click.option(
            "--resume", is_flag=True, help="Go on from OUT's newest checkpoint; the rest as before."
        ),
        settings_options(settings, texts, names=names, choices={**_CHOICES, **(choices or {})}),
        json_option,
    ]
    return lambda command: apply(options, command)
