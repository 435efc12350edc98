"""llama.cpp's options that have no effect here, or that are refused.

An option that asks for what is always so is taken and explained in a line; one that asks for what is
not available is refused with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable

import rich_click as click

from oxibonsai.cli.foreign_options import (
    HIDDEN,
    Command,
    Foreign,
    foreign_option,
    foreign_options,
    refuse,
)

_ON = ("on", "auto", "1", "true")
# Names, whether a value follows, and why there is nothing to set.
_EXPLAINED: tuple[Foreign, ...] = (
    (("--no-mmap",), False, "weights are mapped, then packed: they are in memory either way"),
    (("--mlock",), False, "packed weights are not locked in memory"),
    (("--batch-size", "-b"), True, "steps choose their own size; texts don't depend on it"),
    (("--ubatch-size", "-ub"), True, "steps choose their own size; texts don't depend on it"),
    (("--threads-batch", "-tb"), True, "prompts and generation use the same --threads"),
    (("--no-warmup",), False, "there is no warm-up"),
    (("--no-repack", "-nr"), False, "weights are always packed for the machine"),
    (("--numa",), True, "threads and memory lie where the system puts them"),
    (("--prio",), True, "start the command with nice to change its priority"),
    (("--poll",), True, "threads wait a moment for the next step, then sleep"),
    (("--cont-batching", "-cb"), False, "sequences always share steps"),
    (("--defrag-thold", "-dt"), True, "the cache has pages, which need no defragmentation"),
    (("--color", "-co"), False, "texts have no colours"),
    (("--verbose",), False, "there is no log"),
    (("--reasoning-format",), True, "reasoning is shown apart, on stderr"),
)
# What would change a result or its place, with the remedy.
_REFUSED: tuple[Foreign, ...] = (
    (("--no-kv-offload", "-nkvo"), False, "keys and values lie with their layers: --gpu-layers"),
    (("--main-gpu", "-mg"), True, "name the GPU: --device cuda:1"),
    (("--tensor-split", "-ts"), True, "name the GPUs: --device cuda:0,cuda:1"),
    (("--override-tensor", "-ot"), True, "choose the number of layers on the GPU: --gpu-layers"),
    (("--override-kv",), True, "the model is what its file says"),
    (("--escape", "-e"), False, "prompts are read as they are: write line ends, or use --file"),
    *(
        ((name,), True, "positions are as the model's file says")
        for name in ("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale")
    ),
)
# What is always so here.
_GRANTED: tuple[tuple[str, ...], ...] = (
    ("--jinja",), ("--mmap",), ("--simple-io",), ("--log-disable",), ("--no-perf",), ("--no-escape",),
)  # fmt: skip


def _flash_attention(_: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and value not in _ON:
        click.echo(
            f"oxibonsai: {param.opts[0]} {value} has no effect: there is one attention, in tiles",
            err=True,
        )


flash_attention_option = click.option(
    "--flash-attn",
    "-fa",
    is_flag=False,
    flag_value="on",
    type=click.Choice([*_ON, "off", "0", "false"]),
    callback=_flash_attention,
    **HIDDEN,
)


def llama_cpp_options(command: Command) -> Command:
    """Options that are read and change nothing; not shown in help."""
    command = flash_attention_option(command)
    for names in _GRANTED:
        command = click.option(*names, is_flag=True, **HIDDEN)(command)
    return foreign_options(command, _EXPLAINED, _REFUSED)


def conversation_option(remedy: str, *, single_turn: bool) -> Callable[[Command], Command]:
    """llama-cli's options for one turn or several: one is what the command does, the other is refused.

    Args:
        remedy: Which command is for the other.
        single_turn: The command is for one turn.
    """
    one = ("--single-turn", "-st")
    several = ("--conversation", "-cnv", "--interactive", "-i")
    granted, refused = (one, several) if single_turn else (several, one)

    def add(command: Command) -> Command:
        command = click.option(*granted, is_flag=True, **HIDDEN)(command)
        return foreign_option(refused, False, refuse(remedy))(command)

    return add
