"""Pictures on the command line: ``--image FILE``, and what reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.output.messages import NO_IMAGES

Command = Callable[..., Any]


def _split(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[Path]:
    """Also ``a.png,b.png``, as llama.cpp has it, unless a file has that name."""
    paths: list[Path] = []
    for value in values:
        whole = Path(value).expanduser()
        names = [value] if whole.exists() else value.split(",")
        paths += [Path(name).expanduser() for name in names]
    return paths


image_option = click.option(
    "--image",
    "images",
    multiple=True,
    metavar="FILE",
    callback=_split,
    help="A picture (PNG, JPEG, WebP, GIF) that goes before the prompt; may be repeated.",
)


def with_images(text: str, images: Sequence[Path]) -> str | list[dict[str, Any]]:
    """The content of a message: pictures, then the text."""
    if not images:
        return text
    parts: list[dict[str, Any]] = [{"type": "image", "image": path} for path in images]
    return [*parts, {"type": "text", "text": text}] if text else parts


def check_sees(engine: Engine) -> None:
    """RequestError where the model reads text only."""
    if engine.pictures is None:
        raise RequestError(NO_IMAGES)
