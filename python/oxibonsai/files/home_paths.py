"""Paths as people write them: with ``~`` for a home folder."""

from __future__ import annotations

import os
from pathlib import Path


def with_home(path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` and ``~NAME`` replaced by a home folder.

    ``~NAME`` of an unknown user stays as it is, so that opening it fails as any missing file does;
    ``Path.expanduser`` raises RuntimeError for it.
    """
    return Path(os.path.expanduser(path))
