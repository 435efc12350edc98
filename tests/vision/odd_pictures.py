"""Pictures of odd sizes and kinds, as files, made of random pixels over smooth ones."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image


def drawn(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    """uint8 [height, width, channels]: gradients with noise, so that filters and borders matter."""
    random = np.random.default_rng([height, width, channels, seed])
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([(y * 3 + x * (c + 1) * 2) % 256 for c in range(channels)], axis=-1)
    noise = random.integers(0, 256, (height, width, channels))
    return np.where(random.random((height, width, 1)) < 0.3, noise, smooth).astype(np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(orientation: int) -> bytes:
    """A JPEG of a camera that was held so."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(Image.fromarray(drawn(41, 67)), "JPEG", exif=exif)


def _palette(transparent: bool) -> bytes:
    image = Image.fromarray(drawn(50, 70)).quantize(32)
    return saved(image, transparency=3) if transparent else saved(image)


def _pair_of_frames(kind: str) -> bytes:
    first, second = (Image.fromarray(drawn(30, 40, seed=s)) for s in (1, 2))
    lossless = {"lossless": True} if kind == "WEBP" else {}
    return saved(first, kind, save_all=True, append_images=[second], duration=50, **lossless)


ODD_PICTURES: dict[str, bytes] = {
    "one pixel": saved(Image.fromarray(drawn(1, 1))),
    "37 x 1001": saved(Image.fromarray(drawn(1001, 37))),
    "4000 x 30": saved(Image.fromarray(drawn(30, 4000))),
    "square": saved(Image.fromarray(drawn(300, 300))),
    "wide": saved(Image.fromarray(drawn(333, 517))),
    "tall JPEG": saved(Image.fromarray(drawn(640, 479)), "JPEG", quality=90),
    "large": saved(Image.fromarray(drawn(1100, 1700)), "JPEG", quality=80),
    "grey": saved(Image.fromarray(drawn(60, 90, 1)[..., 0])),
    "grey with alpha": saved(Image.fromarray(drawn(60, 90, 2), "LA")),
    "black and white": saved(Image.fromarray(drawn(60, 90, 1)[..., 0]).convert("1")),
    "palette": _palette(False),
    "transparent palette": _palette(True),
    "alpha": saved(Image.fromarray(drawn(64, 300, 4))),
    "alpha WebP": saved(Image.fromarray(drawn(64, 48, 4)), "WEBP", lossless=True),
    "transparent colour": saved(Image.fromarray(drawn(20, 30) // 128 * 128), transparency=(0, 0, 128)),
    "CMYK JPEG": saved(Image.fromarray(drawn(80, 120, 4), "CMYK"), "JPEG", quality=95),
    "progressive JPEG": saved(Image.fromarray(drawn(90, 70)), "JPEG", progressive=True),
    "interlaced GIF": saved(Image.fromarray(drawn(45, 60)).quantize(64), "GIF", interlace=1),
    "animated GIF": _pair_of_frames("GIF"),
    "animated WebP": _pair_of_frames("WEBP"),
    "animated PNG": _pair_of_frames("PNG"),
}  # fmt: skip
