"""Names of pictures, and prompts from wherever they come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from oxibonsai.errors import RequestError
from oxibonsai.files.whole_file import is_replaced

# A prompt that is read when its picture is drawn.
Prompt = Callable[[], str]


def named(path: Path, seed: int, *, many: bool) -> Path:
    """Return the path with the seed in its name, where that has a place for it or there are several.

    Raises:
        RequestError: The name does not end with .png, or all pictures would go into one pipe or device.
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
    """All prompts.

    Args:
        prompt: Itself; ``-`` is stdin.
        file: Holds one, which is read again for each picture.
        batch: Holds one a line.
        recorded: Of a picture that was drawn, used where none is given.
    """
    if sum(source is not None for source in (prompt, file, batch)) > 1:
        raise RequestError("give one of --prompt, --prompt-file and --batch-prompts-file")
    if file is not None:
        _read(file)  # a missing file is no news of the second picture
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
