"""Between pictures as files and users have them and the values that networks work on."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError, UnsupportedError

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_MOST_PIXELS = 8192 * 8192  # of a picture that is read
_REFERENCE_AREA = 1024 * 1024  # larger references are made smaller
_REFERENCE_SIDE, _REFERENCE_RATIO = 64, 8


def to_pixels(values: Floats) -> Pixels:
    """float32 [h, w, 3] from -1 to 1, clamped and rounded half to even, as uint8."""
    unit = np.clip(values * np.float32(0.5) + np.float32(0.5), 0.0, 1.0)
    found: Pixels = np.rint(unit * np.float32(255)).astype(np.uint8)
    return found


def to_values(image: Image) -> Floats:
    """A picture of Pillow's in RGB as float32 [h, w, 3] from -1 to 1."""
    unit = np.asarray(image, np.uint8).astype(np.float32) / np.float32(255)
    return unit * np.float32(2) - np.float32(1)


def open_picture(source: Any) -> Image:
    """A picture in RGB, turned upright.

    Args:
        source: A path, an open binary file, a picture of Pillow's, or uint8 [h, w, 3].

    Raises:
        RequestError: It is no picture, or too large.
        UnsupportedError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as e:
        raise UnsupportedError(
            "reading pictures needs Pillow: pip install 'oxibonsai[images]'"
        ) from e
    if isinstance(source, np.ndarray):
        if (
            source.dtype != np.uint8
            or source.ndim != 3
            or source.shape[2] != 3
            or 0 in source.shape
        ):
            raise RequestError(f"a picture of {source.dtype} {source.shape}; give uint8 [h, w, 3]")
        return Image.fromarray(source)
    name = str(source) if isinstance(source, str | os.PathLike) else "the picture"
    try:
        image = source if isinstance(source, Image.Image) else Image.open(_expanded(source))
        if image.width * image.height > _MOST_PIXELS:
            raise RequestError(
                f"{name} has {image.width} x {image.height} pixels, which is too many"
            )
        return ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as e:
        if isinstance(e, RequestError):
            raise
        raise RequestError(f"cannot read {name} as a picture: {e}") from e


def resized(image: Image, width: int, height: int) -> Image:
    """The picture in a size, by Lanczos' filter."""
    from PIL.Image import Resampling

    if image.size == (width, height):
        return image
    return image.resize((width, height), Resampling.LANCZOS)


def as_reference(image: Image, patch: int) -> Image:
    """A reference picture in the size in which a network looks at it, as diffusers does.

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


def _expanded(source: Any) -> Any:
    return Path(source).expanduser() if isinstance(source, str | os.PathLike) else source
