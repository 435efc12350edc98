"""Idefics 3 and SmolVLM: tiles of a picture that is brought to one length, then an overview."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import HALF, Channels, Size, as_pixels, cut, resize

_LONGEST = 4096  # of any picture, in pixels


@dataclass(frozen=True)
class Idefics3Processor:
    """Tiles row by row, then the overview; the overview alone where one tile is enough.

    Attributes:
        longest_edge: What the longer side is brought to, in pixels.
        image_size: Side of a tile in pixels.
        splits: False: the overview alone.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    longest_edge: int = 4 * 364
    image_size: int = 364
    splits: bool = True
    image_mean: Channels = HALF
    image_std: Channels = HALF

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        side = self.image_size
        image = resize(picture.image, self._scaled(picture.size), "LANCZOS")
        rows = columns = 1
        if self.splits:
            rows, columns = self._grid((image.height, image.width))
            image = resize(image, (rows * side, columns * side), "LANCZOS")
        tiles = [resize(image, (side, side), "LANCZOS")]
        if rows * columns > 1:
            tiles = [*cut(image, rows, columns), *tiles]
        pixels = as_pixels(tiles, self.image_mean, self.image_std)
        return PixelGrid(pixels, (rows, columns), picture.size)

    def _scaled(self, size: Size) -> Size:
        """Return the picture with its longer side as asked, the shorter one even, both within bounds."""
        height, width = size
        ratio = width / height
        if width >= height:
            width = self.longest_edge
            height = int(width / ratio)
            height += height % 2
        else:
            height = self.longest_edge
            width = int(height * ratio)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        ratio = width / height
        if width >= height and width > _LONGEST:
            width, height = _LONGEST, int(_LONGEST / ratio)
        elif height > width and height > _LONGEST:
            height, width = _LONGEST, int(_LONGEST * ratio)
        return max(height, 1), max(width, 1)

    def _grid(self, size: Size) -> Size:
        """Rows and columns of tiles that hold a picture."""
        height, width = size
        side, ratio = self.image_size, width / height
        if width >= height:
            columns = math.ceil(width / side)
            return math.ceil(int(columns * side / ratio) / side), columns
        rows = math.ceil(height / side)
        return rows, math.ceil(int(rows * side * ratio) / side)
