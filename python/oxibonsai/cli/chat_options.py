"""Options of run and chat about the conversation: tools and reasoning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.chat import choose_template
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.cli.options import Command, apply
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError


def reasoning_options(command: Command) -> Command:
    """For models that reason before they answer."""
    return apply(
        [
            click.option(
                "--think/--no-think",
                "enable_thinking",
                default=None,
                help="Let the model reason first, or not. Default: its template's own.",
            ),
            click.option(
                "--thinking-budget",
                "--reasoning-budget",
                type=click.IntRange(0),
                metavar="TOKENS",
                help="Tokens of reasoning at most.",
            ),
        ],
        command,
    )


system_option = click.option(
    "--system",
    "--system-prompt",
    "-sys",
    "system",
    metavar="TEXT",
    help="System message of the chat.",
)


def tool_options(command: Command) -> Command:
    """Functions that the model may call."""
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
    """How conversations are written, in place of what the model's file says."""
    return apply(
        [
            click.option(
                "--chat-template",
                metavar="JINJA",
                help="A Jinja chat template in place of the model's, or chatml.",
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
    return lambda engine: choose_template(engine, source, file)


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
