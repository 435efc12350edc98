"""Options of a command that are the fields of a class of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import rich_click as click

_SHORT = {"learning_rate": "--lr"}


def settings_options(
    settings: type,
    texts: Mapping[str, str],
    *,
    names: Mapping[str, str] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an option for each field; the class checks their ranges.

    Args:
        settings: A dataclass whose fields all have defaults, which also say their types.
        texts: The help of each option, by fields.
        names: Options that are not the fields' own names.
        choices: Values of fields that take few.
    """
    defaults = {f.name: f.default for f in fields(settings)}
    short, few = {**_SHORT, **(names or {})}, choices or {}

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, text in reversed(list(texts.items())):
            default = defaults[name]
            option = click.option(
                short.get(name, f"--{name.replace('_', '-')}"),
                name,
                type=click.Choice(few[name]) if name in few else type(default),
                is_flag=isinstance(default, bool),
                default=default,
                show_default=True,
                help=text,
            )
            command = option(command)
        return command

    return add
