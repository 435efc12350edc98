"""Which model a command is about: a name in any of the forms that other tools have for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import rich_click as click
from click import get_current_context
from click.shell_completion import CompletionItem

from oxibonsai.errors import RequestError
from oxibonsai.sources.local import PACKAGED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Command = Callable[..., Any]

_KEY = "oxibonsai.model"
_HUB = "oxibonsai.hub"  # --hf-repo, --hf-file and the model that they name
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(:.+)?")
_ELSEWHERE = re.compile(r"hf:[\w.-]+/\S+|pip:[\w.-]\S*|https?://\S+\.gguf")


def _note(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """Keep what an argument or another option says, for --model to give back."""
    if value is not None:
        name_model(ctx, value)


def _note_hub(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep a repository, or the file of it that --hf-file names, before or after it."""
    if value is None:
        return
    said: dict[str, str] = ctx.meta.setdefault(_HUB, {})
    said[str(param.name)] = value
    repository = said.get("hf_repo")
    if repository is None:
        return
    if not _REPOSITORY.fullmatch(repository):
        raise RequestError(f"{repository!r} is no repository: write ORG/REPO, or ORG/REPO:QUANT")
    if "hf_file" in said:
        repository = f"{repository.partition(':')[0]}:{said['hf_file']}"
    if ctx.meta.get(_KEY) == said.get("model"):  # without the file
        ctx.meta.pop(_KEY, None)
    said["model"] = f"hf:{repository}"
    name_model(ctx, said["model"])


def _set_variable(name: str, value: str | None = None) -> Callable[..., None]:
    """Return a callback that sets an environment variable of the hub's library."""

    def set_it(ctx: click.Context, _: click.Parameter, given: str | bool | None) -> None:
        if given and not ctx.resilient_parsing:
            os.environ[name] = value or str(given)

    return set_it


def _take(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        name_model(ctx, value)
    return named_model(ctx)


def name_model(ctx: click.Context, value: str) -> None:
    """Say which model a command is about.

    Raises:
        RequestError: Another one is named already.
    """
    if ctx.meta.setdefault(_KEY, value) != value:
        raise RequestError(f"two models are named: {ctx.meta[_KEY]} and {value}")


def check_is_text(text: str) -> None:
    """Refuse an argument that names a model where the command takes texts and no model is named.

    Raises:
        RequestError: It is a model file or folder, or begins as the name of one elsewhere.
    """
    ctx = get_current_context()
    if named_model(ctx) is None and is_model(text):
        raise RequestError(
            f"{text} is a model, where {ctx.info_name} takes a text: name the model with -m {text}"
        )


def is_model(text: str) -> bool:
    """Return whether a text is a model's file or folder, or begins as the name of one elsewhere."""
    if not text:  # as a path, the current folder
        return False
    if text in PACKAGED or _ELSEWHERE.fullmatch(text):
        return True
    path = Path(text)
    try:
        if path.suffix == ".gguf":
            return path.is_file()
        return (path / "config.json").is_file() or any(path.glob("*.gguf"))
    except (OSError, ValueError):  # a text that can't be a path
        return False


def complete_model(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return a shell's completions for a model: packaged ones and files."""
    packaged = [CompletionItem(name) for name in PACKAGED if name.startswith(incomplete)]
    return packaged if packaged and incomplete else [CompletionItem(incomplete, type="file")]


# Read before --model, which then knows what it has said.
_HUB_OPTIONS = [
    click.option(
        "--hf-repo",
        "-hf",
        "-hfr",
        "hf_repo",
        metavar="ORG/REPO[:QUANT]",
        is_eager=True,
        expose_value=False,
        callback=_note_hub,
        help="A repository of the hub, as llama.cpp names it: the same as --model hf:ORG/REPO.",
    ),
    click.option(
        "--hf-file",
        "-hff",
        "hf_file",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_note_hub,
        hidden=True,
        help="The file of --hf-repo.",
    ),
    click.option(
        "--hf-token",
        "-hft",
        metavar="TOKEN",
        is_eager=True,
        expose_value=False,
        callback=_set_variable("HF_TOKEN"),
        hidden=True,
        help="A token of the hub, as the variable HF_TOKEN.",
    ),
    click.option(
        "--offline",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_variable("HF_HUB_OFFLINE", "1"),
        hidden=True,
        help="Use downloaded models alone, as the variable HF_HUB_OFFLINE=1.",
    ),
]
_URL = click.option(
    "--model-url",
    "-mu",
    metavar="URL",
    is_eager=True,
    expose_value=False,
    callback=_note,
    hidden=True,
    help="The address of a GGUF file.",
)
_MODEL = click.option(
    "--model",
    "-m",
    metavar="MODEL",
    callback=_take,
    shell_complete=complete_model,
    help="A GGUF file, a folder, hf:org/repo[:file or quant], https://..., pip:package, "
    "seedling-ternary or seedling-1bit. Default: OXIBONSAI_MODEL, else seedling-ternary, a tiny "
    "demonstration.",
)
_ARGUMENT = click.argument(
    "named",
    metavar="[MODEL]",
    required=False,
    is_eager=True,
    expose_value=False,
    callback=_note,
    shell_complete=complete_model,
)


def _read_config(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    """Make the file's values the defaults of the command's options."""
    if value is None:
        return
    try:
        with value.open("rb") as file:
            table = tomllib.load(file)
    except OSError as e:
        raise RequestError(f"cannot read the configuration {value}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise RequestError(f"{value} is not TOML: {e}") from e
    own = [p for p in ctx.command.params if isinstance(p, click.Option) and p.name != "config"]
    # By any of an option's names: repeat-penalty as well as repetition_penalty.
    fields = {
        o.lstrip("-").replace("-", "_"): str(p.name) for p in own for o in [*p.opts, str(p.name)]
    }
    defaults: dict[str, Any] = {}
    for name, given in table.items():
        field = fields.get(name.replace("-", "_"))
        if field is None:
            near = get_close_matches(name.replace("-", "_"), fields, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RequestError(f"{value} sets {name!r}, which is no option of this command{hint}")
        defaults[field] = given
    ctx.default_map = defaults


_CONFIG = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_read_config,
    help="A TOML file with any of these options, by their long names; the command line goes before.",
)


def model_option(command: Command) -> Command:
    """Add ``--model`` and llama.cpp's options for models on the hub and the web."""
    for option in (_CONFIG, _URL, *_HUB_OPTIONS, _MODEL):
        command = option(command)
    return command


def hub_options(command: Command) -> Command:
    """Add llama.cpp's options for models on the hub and the web alone."""
    for option in (_URL, *_HUB_OPTIONS):
        command = option(command)
    return command


def model_argument(command: Command) -> Command:
    """Return a model without ``--model``, for commands that have no other argument."""
    return _ARGUMENT(command)


def named_model(ctx: click.Context) -> str | None:
    """Return the model that the options or the argument name.

    Raises:
        RequestError: A file of a repository is named without the repository.
    """
    if "hf_file" in ctx.meta.get(_HUB, {}) and "model" not in ctx.meta[_HUB]:
        raise RequestError("--hf-file needs --hf-repo: name the repository, too")
    named: str | None = ctx.meta.get(_KEY)
    return named
