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


def convolution_windows(hidden: Floats, size: int) -> Floats:
    """Return squares of patches as a convolution's windows: of each column all patches of the square.

    Args:
        hidden: float32 [patches, width], in :func:`merge_order`.
        size: Patches that become one token, on each axis.

    Returns:
        float32 [tokens, width * size * size].
    """
    squares = hidden.reshape(len(hidden) // size**2, size**2, -1)
    return np.ascontiguousarray(squares.transpose(0, 2, 1)).reshape(len(squares), -1)


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


_SHARPNESS = np.float32(-0.75)  # of the cubic kernel, as torch has it


def resample_places_bicubic(table: Floats, rows: int, cols: int) -> Floats:
    """Learned embeddings of a square grid of places for another grid, bicubic between their middles.

    What lies beyond a border is as the border.

    Args:
        table: float32 [side * side, width].
        rows: Of the wanted grid.
        cols: Of the wanted grid.

    Returns:
        float32 [rows, cols, width].
    """
    side = int(np.sqrt(len(table)))
    grid = table.reshape(side, side, -1)
    (at_y, weights_y), (at_x, weights_x) = _cubic_taps(rows, side), _cubic_taps(cols, side)
    lines = np.zeros((side, cols, grid.shape[2]), np.float32)
    for at, weight in zip(at_x, weights_x, strict=True):
        lines += grid[:, at] * weight[:, None]
    total = np.zeros((rows, cols, grid.shape[2]), np.float32)
    for at, weight in zip(at_y, weights_y, strict=True):
        total += lines[at] * weight[:, None, None]
    return total


def _cubic_taps(count: int, side: int) -> tuple[Integers, Floats]:
    """Return the four neighbours among ``side`` of each of ``count`` places, and their weights."""
    middle = (np.arange(count) + 0.5) * side / count - 0.5
    first = np.floor(middle).astype(np.int64)
    t, one, a = (middle - first).astype(np.float32), np.float32(1.0), _SHARPNESS
    far = ((t + one, one + one - t), (t, one - t))
    outer = [((d - np.float32(5)) * d + np.float32(8)) * d * a - np.float32(4) * a for d in far[0]]
    inner = [((a + np.float32(2)) * d - (a + np.float32(3))) * d * d + one for d in far[1]]
    at = np.clip(first + np.arange(-1, 3)[:, None], 0, side - 1)
    return at, np.stack([outer[0], *inner, outer[1]])


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
