"""The options of ``oxibonsai image`` in mflux's forms: several values behind a name, and other names."""

from __future__ import annotations

import os
from collections.abc import Callable

import rich_click as click

from oxibonsai.cli.foreign_options import Command, Foreign, foreign_options
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home

_IMAGE = ("--image", "--image-path")
_REFERENCES = ("--image-paths", "--reference")
_STRENGTH = ("--strength", "--image-strength")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_WITH_VALUES = ("--seed", "--lora", *_IMAGE, *_REFERENCES)

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
    """``--seed 1 2`` as ``--seed 1 --seed 2``; ``--lora FILE 0.5`` and ``--image FILE 0.5`` likewise.

    Raises:
        RequestError: The strength of ``--image`` stands behind it and behind its own name.
    """
    args = _apart(args)
    spread: list[str] = []
    i = 0
    while i < len(args):
        if args[i] == "--":
            return [*spread, *args[i:]]
        rest = args[i + 1 :]
        values = rest[: next((n for n, t in enumerate(rest) if _is_name(t)), len(rest))]
        parts, taken = _spread(args[i], values)
        if _STRENGTH[0] in parts[1:]:
            _refuse_second_strength(args, parts[-1])
        spread += parts
        i += 1 + taken
    return spread


def _apart(args: list[str]) -> list[str]:
    """``--image=FILE`` as ``--image FILE``, so that a value behind it is seen."""
    apart: list[str] = []
    for i, arg in enumerate(args):
        if arg == "--":
            return [*apart, *args[i:]]
        name, equals, value = arg.partition("=")
        apart += [name, value] if equals and name in _WITH_VALUES else [arg]
    return apart


def _refuse_second_strength(args: list[str], first: str) -> None:
    for arg in args:
        name = arg.partition("=")[0]
        if name in _STRENGTH:
            raise RequestError(
                f"the strength is given twice: {first} behind --image, and by {name}; leave out one"
            )


def _spread(name: str, values: list[str]) -> tuple[list[str], int]:
    """Return the replacement of a name, and how many of the values behind it belong to it."""
    if name == "--seed":
        values = values[: _run(values, _is_number)]
    if name in _REFERENCES:  # what follows the pictures is the prompt
        values = values[: 1 + _run(values[1:], _is_picture)]
    if name in ("--seed", *_REFERENCES) and values:
        return [part for value in values for part in (name, value)], len(values)
    if len(values) > 1 and _is_number(values[1]):
        if name == "--lora":
            return ["--lora-scaled", f"{values[0]}:{values[1]}"], 2
        if name in _IMAGE:
            return [name, values[0], _STRENGTH[0], values[1]], 2
    return [name], 0


def _run(values: list[str], belongs: Callable[[str], bool]) -> int:
    """How many values belong there, from the first on."""
    return next((n for n, value in enumerate(values) if not belongs(value)), len(values))


def _is_picture(text: str) -> bool:
    """Return a file, or the name of one that is missing."""
    return text.lower().endswith(_SUFFIXES) or os.path.isfile(with_home(text))


def _is_name(text: str) -> bool:
    return text.startswith("-") and text != "-" and not _is_number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
