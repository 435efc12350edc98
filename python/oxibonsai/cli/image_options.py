"""Images on the command line: ``--image FILE``, what reads them, and names of new ones."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.whole_file import is_replaced
from oxibonsai.output.messages import NO_IMAGES

_AUTO = "oxibonsai.mmproj_auto"
_ADDRESS = re.compile(r"(https?|data|file|hf):", re.IGNORECASE)
_ENDINGS = (".gif", ".jpeg", ".jpg", ".png", ".webp")
Command = Callable[..., Any]


def image_path(name: str) -> Path:
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
    """Split ``a.png,b.png``, as llama.cpp has it, unless a file has that name."""
    paths: list[Path] = []
    for value in values:
        whole = with_home(value).exists() or _ADDRESS.match(value)
        names = [value] if whole else value.split(",")
        paths += [image_path(name if whole else name.strip()) for name in names]
    return paths


def check_is_no_image(text: str | None) -> None:
    """Raise RequestError where a text beside images names one more, as of ``--image *.png``."""
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
        "--mmproj-url",
        "-mmu",
        "mmproj",
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
    """Add the options that choose the vision tower."""
    for option in reversed(_vision_options):
        command = option(command)
    return command


def with_images(text: str, images: Sequence[Path]) -> str | list[dict[str, Any]]:
    """Return the content of a message: images, then the text."""
    if not images:
        return text
    parts: list[dict[str, Any]] = [{"type": "image", "image": path} for path in images]
    return [*parts, {"type": "text", "text": text}] if text else parts


def check_sees(engine: Engine) -> None:
    """Raise RequestError where the model reads text only."""
    if engine.image_reader is None:
        raise RequestError(NO_IMAGES)


# A prompt that is read when its image is drawn.
Prompt = Callable[[], str]


def named(path: Path, seed: int, *, many: bool) -> Path:
    """Return the path with the seed in its name, where that has a place for it or there are several.

    Raises:
        RequestError: The name does not end with .png, or all images would go into one pipe or device.
    """
    if not is_replaced(path):
        if many:
            raise RequestError(f"{path} takes one picture: name a file, whose name gets the seed")
        return path
    if "{seed}" in path.name:
        path = path.with_name(path.name.replace("{seed}", str(seed)))
    elif many:
        path = path.with_name(f"{path.stem}_seed{seed}{path.suffix}")
    if path.suffix.lower() != ".png":
        raise RequestError(f"{path}: pictures are written as PNG; let the name end with .png")
    return path


def free_name(path: Path) -> Path:
    """Return the path, with a number after its name where there is such a regular file already."""
    if not path.exists() or not is_replaced(path):
        return path
    names = (path.with_name(f"{path.stem}_{i}{path.suffix}") for i in count(1))
    return next(p for p in names if not p.exists())


def read_prompts(
    prompt: str | None, file: Path | None, batch: Path | None, recorded: object
) -> list[Prompt]:
    """Return all prompts.

    Args:
        prompt: Itself; ``-`` is stdin.
        file: Holds one, which is read again for each image.
        batch: Holds one a line.
        recorded: Of an image that was drawn, used where none is given.
    """
    if sum(source is not None for source in (prompt, file, batch)) > 1:
        raise RequestError("give one of --prompt, --prompt-file and --batch-prompts-file")
    if file is not None:
        _read(file)  # a missing file is no news of the second image
        return [lambda: _read(file).strip()]
    if batch is not None:
        lines = [line.strip() for line in _read(batch).splitlines() if line.strip()]
        if not lines:
            raise RequestError(f"{batch} holds no prompts")
        return [lambda line=line: line for line in lines]  # type: ignore[misc]
    if prompt is None and isinstance(recorded, str):
        prompt = recorded
    if prompt is None:
        raise RequestError("no prompt: give --prompt, --prompt-file or --batch-prompts-file")
    text = sys.stdin.read().strip() if prompt == "-" else prompt
    return [lambda: text]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        raise RequestError(f"cannot read {path}: {e}") from e
