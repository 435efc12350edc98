"""llama.cpp's options that ask here for what is always so: taken, and explained in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

Command = Callable[..., Any]

_ON = ("on", "auto", "1", "true")
# Names, whether a value follows, and why there is nothing to set.
_EXPLAINED: tuple[tuple[tuple[str, ...], bool, str], ...] = (
    (("--no-mmap",), False, "weights are mapped, then packed: they are in memory either way"),
    (("--mlock",), False, "packed weights are not locked in memory"),
    (("--batch-size", "-b"), True, "steps choose their own size; texts don't depend on it"),
    (("--ubatch-size", "-ub"), True, "steps choose their own size; texts don't depend on it"),
    (("--threads-batch", "-tb"), True, "prompts and generation use the same --threads"),
    (("--no-warmup",), False, "there is no warm-up"),
    (("--no-repack", "-nr"), False, "weights are always packed for the machine"),
)
# What is always so here.
_GRANTED: tuple[tuple[str, ...], ...] = (("--jinja",), ("--mmap",))


def _explain(reason: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def explain(_: click.Context, param: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            click.echo(f"oxibonsai: {param.opts[0]} has no effect: {reason}", err=True)

    return explain


def _flash_attention(_: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and value not in _ON:
        click.echo(
            f"oxibonsai: {param.opts[0]} {value} has no effect: there is one attention, in tiles",
            err=True,
        )


_HIDDEN: dict[str, Any] = {"expose_value": False, "hidden": True}

flash_attention_option = click.option(
    "--flash-attn",
    "-fa",
    is_flag=False,
    flag_value="on",
    type=click.Choice([*_ON, "off", "0", "false"]),
    callback=_flash_attention,
    **_HIDDEN,
)


def llama_cpp_options(command: Command) -> Command:
    """Options that are read and change nothing; not shown in help."""
    command = flash_attention_option(command)
    for names in _GRANTED:
        command = click.option(*names, is_flag=True, **_HIDDEN)(command)
    for names, takes_value, reason in _EXPLAINED:
        kind: dict[str, Any] = {"type": str} if takes_value else {"is_flag": True}
        command = click.option(*names, callback=_explain(reason), **kind, **_HIDDEN)(command)
    return command
