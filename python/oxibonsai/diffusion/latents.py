"""Sizes of images in pixels and tokens, positions of tokens, and the noise that an image starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import RequestError

Positions = npt.NDArray[np.int32]

MOST_PIXELS = 2048
"""The most pixels of a side."""

_REFERENCE_DISTANCE = 10  # on the time axis, from the image to the first reference and on


@dataclass(frozen=True)
class Grid:
    """The tokens of an image.

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
    """Return the tokens of an image of a size.

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


def joint_positions(image: Grid, references: list[Grid]) -> Positions:
    """Return the positions of an image's tokens, then of its references', each at a time of its own."""
    times = (_REFERENCE_DISTANCE * (i + 1) for i in range(len(references)))
    parts = [g.positions(time) for g, time in zip(references, times, strict=True)]
    return np.concatenate([image.positions(), *parts])


Floats = npt.NDArray[np.float32]

GENERATORS = ("mlx", "torch")
"""``mlx``: Threefry as mflux draws it; ``torch``: as diffusers does with a generator on the CPU."""


def noise(seed: int, channels: int, rows: int, cols: int, generator: str = "mlx") -> Floats:
    """Return standard normal latents of one image.

    Both generators fill [channels, rows, cols], which is then transposed to tokens.

    Args:
        seed: From -2^63 up to 2^64 - 1; a negative one wraps around.
        channels: Of a token.
        rows, cols: Tokens of the image.
        generator: One of :data:`GENERATORS`.

    Returns:
        float32 [rows * cols, channels].

    Raises:
        RequestError: The seed is out of range, or there is no such generator.
    """
    if not -(2**63) <= seed < 2**64:
        raise RequestError(f"seed {seed} is out of range: give one from -2^63 to 2^64 - 1")
    if generator not in GENERATORS:
        raise RequestError(
            f"there is no generator {generator!r}; use one of {', '.join(GENERATORS)}"
        )
    draw = _core.mlx_normals if generator == "mlx" else _core.torch_normals
    values = draw(seed % 2**64, channels * rows * cols)
    return values.reshape(channels, rows * cols).T.copy()
