"""Pictures on the command line: ``--image FILE``, and what reads them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.output.messages import NO_IMAGES

_AUTO = "oxibonsai.mmproj_auto"
_ADDRESS = re.compile(r"(https?|data|file|hf):", re.IGNORECASE)
_ENDINGS = (".gif", ".jpeg", ".jpg", ".png", ".webp")
Command = Callable[..., Any]


def picture_path(name: str) -> Path:
    """Return the named file; a terminal into which it was dropped adds quotes or backslashes.

    Raises:
        RequestError: There is no such file, or the name is none of a file.
    """
    path = with_home(name)
    if name and path.exists():
        return path
    if _ADDRESS.match(name):
        raise RequestError(
            f"{name[:80]} is an address, where a picture is a file: download it first"
        )
    try:
        words = shlex.split(name)
    except ValueError:  # a quote without its other half
        words = []
    if len(words) == 1 and with_home(words[0]).exists():
        return with_home(words[0])
    if not name.strip():
        raise RequestError("a picture needs the name of its file")
    raise RequestError(f"cannot read the picture {name}: No such file or directory")


def _split(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[Path]:
    """Also ``a.png,b.png``, as llama.cpp has it, unless a file has that name."""
    paths: list[Path] = []
    for value in values:
        whole = with_home(value).exists() or _ADDRESS.match(value)
        names = [value] if whole else value.split(",")
        paths += [picture_path(name if whole else name.strip()) for name in names]
    return paths


def check_is_no_picture(text: str | None) -> None:
    """RequestError where a text beside pictures names one more, as a shell makes of ``--image *.png``."""
    if text is None or not text.lower().endswith(_ENDINGS) or not with_home(text).is_file():
        return
    raise RequestError(
        f"{text} is a picture, where a text belongs: name each one with --image (a text like this goes "
        "with --prompt)"
    )


image_option = click.option(
    "--image",
    "images",
    multiple=True,
    metavar="FILE",
    callback=_split,
    help="A picture (PNG, JPEG, WebP, GIF) to put before the prompt; may be repeated.",
)


def _no_tower(ctx: click.Context, _: click.Parameter, value: bool | None) -> None:
    ctx.meta[_AUTO] = value


def _tower(ctx: click.Context, _: click.Parameter, value: str | None) -> str | bool | None:
    """Return the ``mmproj`` argument of ``load()``: a name, None to discover it, False for none."""
    if value is not None:
        return value
    return False if ctx.meta.get(_AUTO) is False else None


_vision_options = [
    click.option(
        "--mmproj-auto/--no-mmproj-auto",
        " /--no-mmproj",
        "mmproj_auto",
        default=None,
        is_eager=True,
        expose_value=False,
        callback=_no_tower,
        help="Look for a vision tower beside the model, or in its repository.  [default: on]",
    ),
    click.option(
        "--mmproj",
        "-mm",
        metavar="FILE",
        callback=_tower,
        help="The model's vision tower: an mmproj GGUF file, hf:org/repo:FILE, https://... or a folder "
        "of safetensors.",
    ),
    click.option(
        "--image-min-tokens",
        type=click.IntRange(1),
        help="Minimum number of tokens of a picture, for models that read pictures in their original size.",
    ),
    click.option(
        "--image-max-tokens", type=click.IntRange(1), help="Maximum number of tokens of a picture."
    ),
]


def vision_options(command: Command) -> Command:
    """Which tower the model sees with."""
    for option in reversed(_vision_options):
        command = option(command)
    return command


def with_images(text: str, images: Sequence[Path]) -> str | list[dict[str, Any]]:
    """Return the content of a message: pictures, then the text."""
    if not images:
        return text
    parts: list[dict[str, Any]] = [{"type": "image", "image": path} for path in images]
    return [*parts, {"type": "text", "text": text}] if text else parts


def check_sees(engine: Engine) -> None:
    """RequestError where the model reads text only."""
    if engine.pictures is None:
        raise RequestError(NO_IMAGES)
