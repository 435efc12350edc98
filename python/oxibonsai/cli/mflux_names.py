"""The options of ``oxibonsai image`` in mflux's forms: several values behind a name, and other names."""

from __future__ import annotations

import rich_click as click

from oxibonsai.cli.foreign_options import Command, Foreign, foreign_options

# Names, whether a value follows, and why there is nothing to set.
_EXPLAINED: tuple[Foreign, ...] = (
    (("--low-ram",), False, "the text encoder never stays in memory beside the transformer"),
    (("--mlx-cache-limit-gb",), True, "buffers are as large as the picture needs"),
    (("--vae-tiling",), False, "pictures are always decoded in tiles, which changes no byte"),
    (("--vae-tile-size",), True, "pictures are decoded in tiles whose size changes no byte"),
)
# What would change the picture or needs something else, with the remedy.
_REFUSED: tuple[Foreign, ...] = (
    (
        ("--negative-prompt",),
        True,
        "the model is distilled and draws without guidance; say in --prompt what is to be seen",
    ),
    (("--quantize", "-q"), True, "weights keep the type that the model's files have"),
    (("--lora-paths",), True, "give each adapter with --lora, or --lora-scaled FILE:SCALE"),
    (("--lora-scales",), True, "give each adapter with its scale: --lora-scaled FILE:SCALE"),
    (("--scheduler",), True, "the steps are those of the model"),
    (("--small-decoder",), False, "give its file: --vae FILE"),
    (("--base-model",), True, "the model's own files say what it is"),
    (("--battery-percentage-stop-limit",), True, "stop with Ctrl-C; finished pictures are kept"),
)


def mflux_options(command: Command) -> Command:
    """Options that mflux has and that there is nothing to set for here; not shown in help."""
    return foreign_options(command, _EXPLAINED, _REFUSED)


class SeveralValues(click.RichCommand):
    """A command whose ``--seed``, ``--image-paths``, ``--lora`` and ``--image`` take what mflux's take."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click takes one value behind a name, so each further one gets a name of its own."""
        return super().parse_args(ctx, one_value_each(args))


def one_value_each(args: list[str]) -> list[str]:
    """``--seed 1 2`` as ``--seed 1 --seed 2``; ``--lora FILE 0.5`` and ``--image FILE 0.5`` likewise."""
    spread: list[str] = []
    i = 0
    while i < len(args):
        if args[i] == "--":
            return [*spread, *args[i:]]
        rest = args[i + 1 :]
        values = rest[: next((n for n, t in enumerate(rest) if _is_name(t)), len(rest))]
        parts, taken = _spread(args[i], values)
        spread += parts
        i += 1 + taken
    return spread


def _spread(name: str, values: list[str]) -> tuple[list[str], int]:
    """What takes the place of a name, and how many of the values behind it belong there."""
    if name == "--seed":
        values = values[: next((n for n, t in enumerate(values) if not _is_number(t)), len(values))]
    if name in ("--seed", "--image-paths", "--reference") and values:
        return [part for value in values for part in (name, value)], len(values)
    if len(values) > 1 and _is_number(values[1]):
        if name == "--lora":
            return ["--lora-scaled", f"{values[0]}:{values[1]}"], 2
        if name in ("--image", "--image-path"):
            return [name, values[0], "--strength", values[1]], 2
    return [name], 0


def _is_name(text: str) -> bool:
    return text.startswith("-") and text != "-" and not _is_number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
