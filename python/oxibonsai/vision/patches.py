"""From pixels to patches, and the learned embeddings of their places.

Everything here is elementwise float32 arithmetic in a fixed order, the same on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def patches_of(tile: Floats, size: int) -> Floats:
    """Cut a tile into square patches.

    Args:
        tile: float32 [channels, height, width], both multiples of ``size``.
        size: Side of a patch in pixels.

    Returns:
        float32 [rows of patches, columns, channels * size * size], in the order of a convolution's
        weights.
    """
    channels, height, width = tile.shape
    rows, cols = height // size, width // size
    cut = tile.reshape(channels, rows, size, cols, size).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(cut).reshape(rows, cols, channels * size * size)


def merge_order(rows: int, cols: int, size: int) -> Integers:
    """Return patches in an order in which the ``size * size`` that become one token follow each other.

    Args:
        rows: Of patches, a multiple of ``size``.
        cols: Likewise.
        size: Patches that become one token, on each axis.

    Returns:
        int64 [rows * cols]: the number, row by row, of each patch.
    """
    numbers = np.arange(rows * cols).reshape(rows // size, size, cols // size, size)
    return numbers.transpose(0, 2, 1, 3).reshape(-1)


def window_order(rows: int, cols: int, size: int) -> tuple[Integers, list[int]]:
    """Return the cells of a grid, window after window.

    Args:
        rows: Of cells.
        cols: Of cells.
        size: Side of a window; those at the right and the bottom may be cut.

    Returns:
        int64 [rows * cols], the number of each cell, row by row; and the cells of each window.
    """
    numbers = np.arange(rows * cols).reshape(rows, cols)
    windows = [
        numbers[y : y + size, x : x + size].reshape(-1)
        for y in range(0, rows, size)
        for x in range(0, cols, size)
    ]
    return np.concatenate(windows), [len(w) for w in windows]


def resample_places(table: Floats, rows: int, cols: int) -> Floats:
    """Learned embeddings of a square grid of places for another grid, bilinear from corner to corner.

    Args:
        table: float32 [side * side, width].
        rows: Of the wanted grid.
        cols: Of the wanted grid.

    Returns:
        float32 [rows, cols, width].
    """
    side = int(np.sqrt(len(table)))
    grid = table.reshape(side, side, -1)
    low_y, high_y, part_y = _taps(rows, side)
    low_x, high_x, part_x = _taps(cols, side)
    one = np.float32(1.0)
    y, x = part_y[:, None, None], part_x[None, :, None]
    total = grid[low_y][:, low_x] * ((one - y) * (one - x))
    total += grid[low_y][:, high_x] * ((one - y) * x)
    total += grid[high_y][:, low_x] * (y * (one - x))
    total += grid[high_y][:, high_x] * (y * x)
    return np.asarray(total, dtype=np.float32)


def _taps(count: int, side: int) -> tuple[Integers, Integers, Floats]:
    """Return the neighbours among ``side`` of each of ``count`` places, and its distance from the first."""
    at = np.arange(count, dtype=np.float32) * np.float32(side - 1) / np.float32(max(count - 1, 1))
    low = np.floor(at)
    first = low.astype(np.int64)
    return first, np.minimum(first + 1, side - 1), at - low


def pool(rows: Floats, side: int, size: int) -> Floats:
    """Return the means of squares of ``size * size`` patches of a square grid.

    Args:
        rows: float32 [side * side, width].
        side: Of the grid, a multiple of ``size``.
        size: Side of a square.

    Returns:
        float32 [(side // size) ** 2, width].
    """
    count = side // size
    squares = rows.reshape(count, size, count, size, -1)
    total = np.zeros((count, count, rows.shape[1]), np.float32)
    for y in range(size):
        for x in range(size):
            total += squares[:, y, :, x]
    return (total / np.float32(size * size)).reshape(count * count, -1)
