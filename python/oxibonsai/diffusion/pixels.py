"""Between pictures as users have them and the values that networks work on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_REFERENCE_AREA = 1024 * 1024  # larger references are made smaller
_REFERENCE_SIDE, _REFERENCE_RATIO = 64, 8


def to_pixels(values: Floats) -> Pixels:
    """float32 [h, w, 3] from -1 to 1, clamped and rounded half to even, as uint8."""
    unit = np.clip(values * np.float32(0.5) + np.float32(0.5), 0.0, 1.0)
    found: Pixels = np.rint(unit * np.float32(255)).astype(np.uint8)
    return found


def to_values(image: Image) -> Floats:
    """Return a picture of Pillow's in RGB as float32 [h, w, 3] from -1 to 1."""
    unit = np.asarray(image, np.uint8).astype(np.float32) / np.float32(255)
    return unit * np.float32(2) - np.float32(1)


def resized(image: Image, width: int, height: int) -> Image:
    """Return the picture in a size, by Lanczos' filter."""
    from PIL.Image import Resampling

    if image.size == (width, height):
        return image
    return image.resize((width, height), Resampling.LANCZOS)


def as_reference(image: Image, patch: int) -> Image:
    """Return a reference picture in the size in which a network looks at it, as diffusers does.

    One of more than 1024 x 1024 pixels is made smaller; then its middle is cut out so that sides are
    multiples of ``patch``.

    Raises:
        RequestError: The picture is too small or too narrow.
    """
    width, height = image.size
    least = max(_REFERENCE_SIDE, patch)
    if min(width, height) < least:
        raise RequestError(f"a reference of {width} x {height} pixels: sides need at least {least}")
    if max(width / height, height / width) > _REFERENCE_RATIO:
        raise RequestError(
            f"a reference of {width} x {height} pixels: one side is more than {_REFERENCE_RATIO} times "
            "the other"
        )
    if width * height > _REFERENCE_AREA:
        factor = math.sqrt(_REFERENCE_AREA / (width * height))
        width, height = int(width * factor), int(height * factor)
        image = resized(image, width, height)
    wide, high = width // patch * patch, height // patch * patch
    left, top = (width - wide) // 2, (height - high) // 2
    return image.crop((left, top, left + wide, top + high))
