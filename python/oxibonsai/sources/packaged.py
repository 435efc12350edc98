"""The models that this package carries: small, made to show and to test with.

Their cards: docs/seedling.md and docs/seedling-picture.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from oxibonsai.errors import SourceError

_FOLDER = Path(__file__).resolve().parents[1] / "seedling"
PACKAGED = ("seedling-ternary", "seedling-1bit")
PICTURE_MODEL = "seedling-picture"


def resolve_packaged(name: str) -> Path:
    """Return the file of one of ``PACKAGED``, or of ``PICTURE_MODEL``.

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
    """Tells on stderr that nobody named a model, and how to.

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
