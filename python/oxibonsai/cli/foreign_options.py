"""Options that other programs have and this one does not.

They are read and explained in a line, or refused with what to do instead. None is shown in help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rich_click as click

from oxibonsai.errors import RequestError

Command = Callable[..., Any]
Callback = Callable[[click.Context, click.Parameter, Any], None]
# Names of an option, whether a value follows, and what is said of it.
Foreign = tuple[tuple[str, ...], bool, str]

HIDDEN: dict[str, Any] = {"expose_value": False, "hidden": True}


def explain(reason: str) -> Callback:
    """Return a callback that says why the option has no effect."""

    def say(_: click.Context, param: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            click.echo(f"oxibonsai: {param.opts[0]} has no effect: {reason}", err=True)

    return say


def refuse(remedy: str) -> Callback:
    """Return a callback that refuses the option and says what to do instead."""

    def say(_: click.Context, param: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            raise RequestError(f"{param.opts[0]} is not available: {remedy}")

    return say


def foreign_option(
    names: tuple[str, ...], takes_value: bool, callback: Callback
) -> Callable[[Command], Command]:
    """Return an option that is only there for its callback."""
    kind: dict[str, Any] = {"type": str} if takes_value else {"is_flag": True}
    return click.option(*names, callback=callback, **kind, **HIDDEN)


def foreign_options(
    command: Command, explained: Sequence[Foreign], refused: Sequence[Foreign]
) -> Command:
    """Add options that have no effect, with the reasons, and options to refuse, with the remedies."""
    said = [(names, value, explain(reason)) for names, value, reason in explained]
    said += [(names, value, refuse(remedy)) for names, value, remedy in refused]
    for names, takes_value, say in said:
        command = foreign_option(names, takes_value, say)(command)
    return command
