"""Resizing as Pillow does it, and pixels as floats, for all processors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError
from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid

if TYPE_CHECKING:
    from PIL import Image

Filter = Literal["BILINEAR", "BICUBIC", "LANCZOS"]
Size = tuple[int, int]  # height and width in pixels
Channels = tuple[float, float, float]

CLIP_MEAN: Channels = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Channels = (0.26862954, 0.26130258, 0.27577711)
HALF: Channels = (0.5, 0.5, 0.5)

# An image of one row would grow to gigabytes where its shorter side is brought to a model's size.
_MOST_RESIZED = 1 << 25


class ImageProcessor(Protocol):
    """Makes of an image what a tower reads, with the numbers of the model's own processor.

    Pixels are those of transformers' processors of version 5 with their Pillow backend, bit by bit.
    """

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """Return the image resized, cut into tiles and normalised.

        Raises:
            RequestError: Its shape is nothing for this model.
        """
        ...


@dataclass(frozen=True)
class PixelBounds:
    """Bounds on what an image of any size is resized to.

    Attributes:
        unit: Side of what becomes one token, in pixels.
        least: Pixels; smaller images are enlarged.
        most: Pixels; larger ones are reduced.
    """

    unit: int
    least: int
    most: int

    def with_tokens(self, least: int | None, most: int | None) -> PixelBounds:
        """Return other bounds, in tokens of an image; None: as it is.

        A model's own lower bound does not hold where it is above the upper one that is given.

        Raises:
            RequestError: They exclude each other.
        """
        area = self.unit**2
        upper = self.most if most is None else most * area
        lower = self.least if least is None else least * area
        if least is None and most is not None and lower > upper:
            lower = area
        changed = PixelBounds(self.unit, lower, upper)
        if changed.least > changed.most:
            raise RequestError(
                f"a picture would have at least {changed.least // area} tokens and at most "
                f"{changed.most // area}: set both --image-min-tokens and --image-max-tokens"
            )
        return changed

    def fit(self, size: Size, tokens: Size) -> Size:
        """Return rows and columns of tokens, in about the image's ratio.

        Args:
            size: Of the image, in pixels.
            tokens: Rows and columns that it has by itself.
        """
        height, width = size
        rows, columns = tokens
        area = rows * columns * self.unit**2
        if area > self.most:
            shrink = math.sqrt(height * width / self.most)
            rows = max(1, math.floor(height / shrink / self.unit))
            columns = max(1, math.floor(width / shrink / self.unit))
        elif area < self.least:
            grow = math.sqrt(self.least / (height * width))
            rows = math.ceil(height * grow / self.unit)
            columns = math.ceil(width * grow / self.unit)
        return rows, columns


def resize(image: Image.Image, size: Size, resample: Filter) -> Image.Image:
    """Return the image in another size; RequestError where that is nothing or huge."""
    from PIL.Image import Resampling

    check_size(image, size)
    return image.resize((size[1], size[0]), Resampling[resample])


def check_size(image: Image.Image, size: Size) -> None:
    """RequestError where an image would become nothing or huge."""
    height, width = size
    if height < 1 or width < 1 or height * width > _MOST_RESIZED:
        raise RequestError(
            f"a picture of {image.width} x {image.height} pixels is too long for this model, which would "
            f"read it as {width} x {height}: cut it"
        )


def as_pixels(
    tiles: Iterable[Image.Image], mean: Channels, std: Channels
) -> npt.NDArray[np.float32]:
    """Return the tiles of one size as float32 [tiles, 3, height, width]: ``(value / 255 - mean) / std``.

    Rounded to float32 after the division by 255 and after each further step.
    """
    scaled = (np.arange(256) * (1 / 255)).astype(np.float32)[:, None]
    table = (scaled - np.array(mean, np.float32)) / np.array(std, np.float32)
    return look_up(tiles, np.asarray(table, np.float32))


def look_up(
    tiles: Iterable[Image.Image], table: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return the same of a table, float32 [256, 3]: what each value of a channel becomes."""
    channels = np.stack([np.asarray(tile) for tile in tiles]).transpose(0, 3, 1, 2)
    pixels = np.empty(channels.shape, np.float32)
    for c in range(3):
        np.take(table[:, c], channels[:, c], out=pixels[:, c])
    return pixels


def cut(image: Image.Image, rows: int, columns: int) -> list[Image.Image]:
    """Equal tiles, row by row."""
    height, width = image.height // rows, image.width // columns
    return [
        image.crop((x * width, y * height, (x + 1) * width, (y + 1) * height))
        for y in range(rows)
        for x in range(columns)
    ]
