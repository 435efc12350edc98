"""Opens an importance matrix, whichever of the two forms the file has."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from oxibonsai.errors import FormatError
from oxibonsai.imatrix.gguf_format import read_gguf
from oxibonsai.imatrix.legacy_format import read_legacy
from oxibonsai.imatrix.matrix import Imatrix


def read_imatrix(path: str | os.PathLike[str]) -> Imatrix:
    """Return the importance matrix that oxibonsai or llama.cpp wrote: GGUF, or the older .dat.

    Raises:
        FormatError: The file can't be read, is damaged or is something else.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if not start:
            raise FormatError(f"{path} is empty: it is no importance matrix")
        matrix = read_gguf(path) if start == b"GGUF" else read_legacy(path)
    except OSError as e:
        raise FormatError(f"cannot read the importance matrix {path}: {e.strerror}") from e
    _check_means(matrix, path)
    return matrix


def _check_means(matrix: Imatrix, path: Path) -> None:
    """Sum and counts may be finite, and their ratio not."""
    for name, entry in matrix.entries.items():
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(entry.importance()).all())
        if not finite:
            raise FormatError(f"{path}: {name} has sums that are too large for their counts")
