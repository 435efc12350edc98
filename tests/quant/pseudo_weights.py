"""Matrices like a model's weights, the same numbers with any version of numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

ROWS, COLS = 24, 1024


def _uniform(count: int, seed: int) -> npt.NDArray[np.float64]:
    """Numbers in (-1, 1) from a 64-bit mixer (splitmix64)."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def _bell(seed: int) -> npt.NDArray[np.float64]:
    """Sums of four: nearly normal."""
    return _uniform(4 * ROWS * COLS, seed).reshape(4, ROWS, COLS).sum(axis=0) * 0.02


def matrices() -> dict[str, Floats]:
    """Bell-shaped; with heavy tails; with a few large columns."""
    bell = _bell(1)
    heavy = _bell(2) * (0.5 + 4 * np.abs(_uniform(ROWS * COLS, 3).reshape(ROWS, COLS)) ** 6)
    columns = np.where(np.abs(_uniform(COLS, 4)) < 0.01, 8.0, 1.0)
    named = {"bell": bell, "heavy": heavy, "columns": _bell(5) * columns}
    return {name: values.astype(np.float32) for name, values in named.items()}


def importance() -> Floats:
    """Spread over two orders of magnitude."""
    return (0.01 + np.abs(_uniform(COLS, 6)) ** 3).astype(np.float32)


def error(decoded: Floats, values: Floats, weights: Floats | None) -> float:
    """Mean of squares, in which columns count as their importance, relative to its mean."""
    squares = np.square(decoded.astype(np.float64) - values)
    if weights is not None:
        squares *= weights / weights.mean(dtype=np.float64)
    return float(squares.mean())
