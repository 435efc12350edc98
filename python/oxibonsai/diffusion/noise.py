"""The noise that a picture starts from: a function of the seed and of the size alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import RequestError

Floats = npt.NDArray[np.float32]

GENERATORS = ("mlx", "torch")
"""``mlx``: Threefry as mflux draws it; ``torch``: as diffusers does with a generator on the CPU."""


def noise(seed: int, channels: int, rows: int, cols: int, generator: str = "mlx") -> Floats:
    """Return standard normal latents of one image.

    Both generators fill [channels, rows, cols], which is then transposed to tokens.

    Args:
        seed: From -2^63 up to 2^64 - 1; a negative one wraps around.
        channels: Of a token.
        rows, cols: Tokens of the picture.
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
