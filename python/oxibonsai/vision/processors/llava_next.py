"""LLaVA 1.6: an overview and tiles of the picture in the best of some resolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import (
    CLIP_MEAN,
    CLIP_STD,
    Channels,
    Size,
    as_pixels,
    check_size,
    cut,
    resize,
)


@dataclass(frozen=True)
class LlavaNextProcessor:
    """An overview, then tiles, row by row; both of one size.

    Attributes:
        image_size: Side of a tile in pixels.
        grid_pinpoints: Resolutions to choose from, height and width in pixels.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    image_size: int = 336
    grid_pinpoints: tuple[Size, ...] = (
        (336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008),
    )  # fmt: skip
    image_mean: Channels = CLIP_MEAN
    image_std: Channels = CLIP_STD

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        from PIL import Image

        side = self.image_size
        height, width = self.best_resolution(picture.size)
        fitted = resize(picture.image, _fitted(picture.size, (height, width)), "BICUBIC")
        check_size(picture.image, (height, width))
        padded = Image.new("RGB", (width, height))
        padded.paste(fitted, ((width - fitted.width) // 2, (height - fitted.height) // 2))
        rows, columns = height // side, width // side
        overview = resize(picture.image, (side, side), "BICUBIC")
        tiles = [overview, *cut(padded, rows, columns)]
        pixels = as_pixels(tiles, self.image_mean, self.image_std)
        return PixelGrid(pixels, (rows, columns), picture.size)

    def best_resolution(self, size: Size) -> Size:
        """Return the resolution that shows most of an image, among equals that with the least left over."""
        height, width = size

        def shown_and_wasted(candidate: Size) -> tuple[int, int]:
            scale = min(candidate[1] / width, candidate[0] / height)
            shown = min(int(width * scale) * int(height * scale), width * height)
            return shown, shown - candidate[0] * candidate[1]

        return max(self.grid_pinpoints, key=shown_and_wasted)


def _fitted(size: Size, target: Size) -> Size:
    """Return the largest size of the same ratio in a target."""
    by_height, by_width = target[0] / size[0], target[1] / size[1]
    if by_width < by_height:
        return min(math.ceil(size[0] * by_width), target[0]), target[1]
    return target[0], min(math.ceil(size[1] * by_height), target[1])
