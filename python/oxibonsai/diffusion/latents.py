"""Sizes of pictures in pixels and in tokens, and the positions of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

Positions = npt.NDArray[np.int32]

MOST_PIXELS = 2048
"""The most pixels of a side."""

_REFERENCE_DISTANCE = 10  # on the time axis, from the picture to the first reference and on


@dataclass(frozen=True)
class Grid:
    """The tokens of a picture.

    Attributes:
        rows, cols: How many.
    """

    rows: int
    cols: int

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.rows * self.cols

    def positions(self, time: int = 0) -> Positions:
        """Return the axes time, row, column and text of each token, row after row: int32 [tokens, 4]."""
        found = np.zeros((self.rows, self.cols, 4), np.int32)
        found[..., 0] = time
        found[..., 1] = np.arange(self.rows)[:, None]
        found[..., 2] = np.arange(self.cols)
        return found.reshape(-1, 4)


def grid_of(width: int, height: int, patch: int) -> Grid:
    """Return the tokens of a picture of a size.

    Args:
        width, height: In pixels.
        patch: Pixels that a token stands for along each axis.

    Raises:
        RequestError: The size can't be drawn; sizes near it are named.
    """
    for name, pixels in (("width", width), ("height", height)):
        if not patch <= pixels <= MOST_PIXELS:
            raise RequestError(
                f"{name} {pixels} is out of range: give a multiple of {patch} "
                f"from {patch} to {MOST_PIXELS}",
                param=name,
            )
        if pixels % patch:
            below = pixels // patch * patch
            near = [str(v) for v in (below, below + patch) if patch <= v <= MOST_PIXELS]
            raise RequestError(
                f"{name} {pixels} is no multiple of {patch}: give {' or '.join(near)}", param=name
            )
    return Grid(height // patch, width // patch)


def joint_positions(picture: Grid, references: list[Grid]) -> Positions:
    """Return the positions of an image's tokens, then of its references', each at a time of its own."""
    times = (_REFERENCE_DISTANCE * (i + 1) for i in range(len(references)))
    parts = [g.positions(time) for g, time in zip(references, times, strict=True)]
    return np.concatenate([picture.positions(), *parts])
