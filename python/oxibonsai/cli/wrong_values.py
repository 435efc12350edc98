"""Messages for values that an option does not take."""

from __future__ import annotations

from typing import Any

import click

_NUMBERS = {click.INT.name: "a whole number", click.FLOAT.name: "a number"}


def wrong_value(error: click.BadParameter) -> str:
    """Return one sentence for a value that is no number, or is out of range; else click's own."""
    param = error.param
    wanted = None if param is None else _wanted(param.type)
    value, found, _ = error.message.partition(" is not ")
    if param is None or wanted is None or not found:
        return error.format_message()
    name = next((o for o in param.opts if o.startswith("--")), param.human_readable_name)
    return f"{name} is {value}: give {wanted}"


def _wanted(kind: click.ParamType[Any]) -> str | None:
    """Return which numbers a type takes; None: it takes something else."""
    if not isinstance(kind, (click.IntRange, click.FloatRange)):
        return _NUMBERS.get(kind.name)
    whole = isinstance(kind, click.IntRange)
    number = _NUMBERS[(click.INT if whole else click.FLOAT).name]
    if kind.min is None or kind.min_open:
        return number if kind.min is None else f"{number} above {kind.min:g}"
    if kind.max is None:
        return f"{number} of {kind.min:g} or more"
    return f"{number} from {kind.min:g} to {kind.max:g}"
