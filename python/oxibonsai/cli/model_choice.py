"""Which model a command is about: a name in any of the forms that other tools have for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import rich_click as click

from oxibonsai.errors import RequestError

Command = Callable[..., Any]

_KEY = "oxibonsai.model"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(:.+)?")


def _note(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keeps what an argument or another option says, for --model to give back."""
    if value is None:
        return
    if param.name == "hf_repo":
        if not _REPOSITORY.fullmatch(value):
            raise RequestError(f"{value!r} is no repository: write ORG/REPO, or ORG/REPO:QUANT")
        value = f"hf:{value}"
    _set(ctx, value)


def _take(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        _set(ctx, value)
    named: str | None = ctx.meta.get(_KEY)
    return named


def _set(ctx: click.Context, value: str) -> None:
    if ctx.meta.setdefault(_KEY, value) != value:
        raise RequestError(f"two models are named: {ctx.meta[_KEY]} and {value}")


# Read before --model, which then knows what they have said.
_ELSEWHERE = [
    click.option(
        "--hf-repo",
        "-hf",
        "-hfr",
        "hf_repo",
        metavar="ORG/REPO[:QUANT]",
        is_eager=True,
        expose_value=False,
        callback=_note,
        help="A repository of the hub, as llama.cpp names it: the same as --model hf:ORG/REPO.",
    ),
    click.option(
        "--model-url",
        "-mu",
        metavar="URL",
        is_eager=True,
        expose_value=False,
        callback=_note,
        hidden=True,
        help="The address of a GGUF file.",
    ),
]
_MODEL = click.option(
    "--model",
    "-m",
    metavar="MODEL",
    callback=_take,
    help="A GGUF file, a folder, hf:org/repo[:file or quant], https://..., pip:package, "
    "seedling-ternary or seedling-1bit. Default: OXIBONSAI_MODEL, else seedling-ternary, a tiny "
    "demonstration.",
)
_ARGUMENT = click.argument(
    "named", metavar="[MODEL]", required=False, is_eager=True, expose_value=False, callback=_note
)


def model_option(command: Command) -> Command:
    """``--model`` and llama.cpp's options for models on the hub and the web."""
    for option in (*reversed(_ELSEWHERE), _MODEL):
        command = option(command)
    return command


def model_argument(command: Command) -> Command:
    """A model without ``--model``, for commands that have no other argument."""
    return _ARGUMENT(command)
