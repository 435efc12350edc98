"""The type of cached keys and values; llama.cpp has one for keys and one for values."""

from __future__ import annotations

import rich_click as click

from oxibonsai.errors import RequestError
from oxibonsai.kv_types import KV_TYPES, find_kv_type

_VALUE_TYPE = "oxibonsai.cache_type_v"


def _note_value_type(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.meta[_VALUE_TYPE] = None if value is None else find_kv_type(value)


def check_value_type(ctx: click.Context, of_keys: str | None) -> None:
    """Check that keys and values are given one type, which they have here.

    Raises:
        RequestError: They are given two.
    """
    of_values = ctx.meta.get(_VALUE_TYPE)
    if of_values is not None and of_values != of_keys:
        raise RequestError(
            f"keys and values have one type: give --cache-type-k {of_values} too, or --kv-type"
        )


def _one_type(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    of_keys = None if value is None else find_kv_type(value)
    check_value_type(ctx, of_keys)
    return of_keys


kv_type_option = click.option(
    "--kv-type",
    "--cache-type-k",
    "-ctk",
    "kv_type",
    metavar="[" + "|".join(KV_TYPES) + "]",
    callback=_one_type,
    shell_complete=lambda _, __, begun: [t for t in KV_TYPES if t.startswith(begun)],
    help="Type of cached keys and values. Default: f32 where they are small.",
)
value_type_option = click.option(
    "--cache-type-v",
    "-ctv",
    metavar="TYPE",
    is_eager=True,
    expose_value=False,
    callback=_note_value_type,
    hidden=True,
)
