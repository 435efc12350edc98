"""Options of run and chat about the conversation: tools and reasoning."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.chat import choose_template, fallback_template, read_template
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.cli.options import Command, apply
from oxibonsai.cli.output import warn
from oxibonsai.cli.prompt import read_file
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.known_models import EFFORTS

_SYSTEM = "oxibonsai.system"


def reasoning_options(command: Command) -> Command:
    """Add the options for models that reason before they answer."""
    return apply(
        [
            click.option(
                "--think/--no-think",
                "enable_thinking",
                default=None,
                help="Let the model reason first, or not. Default: its template's own.",
            ),
            click.option(
                "--reasoning",
                "-rea",
                type=click.Choice(["on", "off", "auto"]),
                hidden=True,
                help="The same as llama.cpp has it.",
            ),
            click.option(
                "--thinking-budget",
                "--reasoning-budget",
                type=click.IntRange(-1),
                metavar="TOKENS",
                callback=lambda _, __, value: (
                    None if value == -1 else value
                ),  # llama.cpp's "no bound"
                help="Tokens of reasoning at most.",
            ),
            click.option(
                "--reasoning-effort",
                type=click.Choice(EFFORTS),
                help="How much to reason: a variable of the chat template, or tokens of reasoning "
                "where the model's makers say how many.",
            ),
            click.option(
                "--chat-template-kwargs",
                "template_options",
                metavar="JSON",
                callback=_template_options,
                help="Further variables of the chat template, as a JSON object.",
            ),
            click.option(
                "--hide-thinking",
                "--hidethinking",
                "hide_thinking",
                is_flag=True,
                help="Print no reasoning.",
            ),
        ],
        command,
    )


def _template_options(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        variables = json.loads(value)
    except ValueError as e:
        raise RequestError(f"--chat-template-kwargs is no JSON: {e}") from e
    if not isinstance(variables, dict):
        raise RequestError(f"--chat-template-kwargs is no JSON object: {value}")
    return variables


def take_reasoning(options: dict[str, Any]) -> dict[str, Any]:
    """Take the reasoning options but ``hide_thinking`` out of a command's: fields of a request."""
    thinks, word = options.pop("enable_thinking"), options.pop("reasoning")
    if word not in (None, "auto"):
        thinks = word == "on"
    names = ("thinking_budget", "reasoning_effort", "template_options")
    return {"enable_thinking": thinks, **{name: options.pop(name) for name in names}}


def _system_file(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.meta[_SYSTEM] = read_file(value)


def _system(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """Return the message; a file of it has been read before."""
    of_file: str | None = ctx.meta.get(_SYSTEM)
    if value is not None and of_file is not None:
        raise RequestError("--system and --system-prompt-file exclude each other")
    return of_file if value is None else value


_system_options = [
    click.option(
        "--system-prompt-file",
        "-sysf",
        type=click.Path(path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_system_file,
        hidden=True,
        help="A file with the system message.",
    ),
    click.option(
        "--system",
        "--system-prompt",
        "-sys",
        "system",
        metavar="TEXT",
        callback=_system,
        help="System message of the chat.",
    ),
]


def system_option(command: Command) -> Command:
    """Add the system message, as a text or a file."""
    return apply(_system_options, command)


def tool_options(command: Command) -> Command:
    """Return the functions that the model may call."""
    return apply(
        [
            click.option(
                "--tools",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="A JSON list of functions in OpenAI's form that the model may call.",
            ),
            click.option(
                "--tool-choice",
                metavar="CHOICE",
                help="auto, none, required, or the name of a function.",
            ),
        ],
        command,
    )


def template_options(command: Command) -> Command:
    """Add the options that say how conversations are written, in place of what the model's file says."""
    return apply(
        [
            click.option(
                "--chat-template",
                metavar="NAME|FILE|JINJA",
                help="A chat template in place of the model's: one of llama.cpp's names, such as chatml, "
                "llama3 or gemma, a file, or Jinja.",
            ),
            click.option(
                "--chat-template-file",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="A file with a chat template.",
            ),
        ],
        command,
    )


def take_template(options: dict[str, Any]) -> Callable[[Engine], ChatTemplate | None]:
    """Take the template options out of a command's: what chooses the template of a model."""
    source: str | None = options.pop("chat_template")
    file: Path | None = options.pop("chat_template_file")
    read_template(source, file)  # what can't be read is said before the model is loaded
    return lambda engine: choose_template(engine, source, file)


def guess_template(engine: Engine) -> ChatTemplate:
    """Return a template for a model without one, and say on stderr which it is."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        template = fallback_template(engine)
    warn([str(note.message) for note in notes])
    return template


def take_tools(options: dict[str, Any]) -> tuple[Sequence[dict[str, Any]], Any]:
    """Take the tool options out of a command's: the tools and the choice in OpenAI's form."""
    path: Path | None = options.pop("tools")
    choice: Any = options.pop("tool_choice")
    if path is None:
        if choice is not None:
            raise RequestError("--tool-choice needs --tools")
        return (), None
    try:
        tools = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise RequestError(f"{path} can't be read as JSON: {e}") from e
    if not isinstance(tools, list):
        raise RequestError(f"{path} is no list of tools")
    if choice not in (None, "auto", "none", "required"):
        choice = {"type": "function", "function": {"name": choice}}
    return tools, choice
