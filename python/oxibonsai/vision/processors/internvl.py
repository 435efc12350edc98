"""InternVL: tiles in the grid whose ratio is nearest to the picture's, then an overview."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import Channels, Size, as_pixels, cut, resize

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InternVLProcessor:
    """Tiles row by row, then the overview; one tile alone where the grid has one.

    Attributes:
        image_size: Side of a tile in pixels.
        min_tiles: Of a grid.
        max_tiles: Of a grid; 1: no grid.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    image_size: int = 448
    min_tiles: int = 1
    max_tiles: int = 12
    image_mean: Channels = IMAGENET_MEAN
    image_std: Channels = IMAGENET_STD

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        side = self.image_size
        rows, columns = self._grid(picture.size)
        tiles = cut(resize(picture.image, (rows * side, columns * side), "BICUBIC"), rows, columns)
        if len(tiles) > 1:
            tiles.append(resize(picture.image, (side, side), "BICUBIC"))
        pixels = as_pixels(tiles, self.image_mean, self.image_std)
        return PixelGrid(pixels, (rows, columns), picture.size)

    def _grid(self, size: Size) -> Size:
        """Rows and columns; among grids of one ratio the largest of which half is filled."""
        height, width = size
        ratio, area = width / height, width * height
        sides = range(1, self.max_tiles + 1)
        grids = [(w, h) for w in sides for h in sides if self.min_tiles <= w * h <= self.max_tiles]
        best, nearest = (1, 1), float("inf")
        for w, h in sorted(grids, key=lambda grid: grid[0] * grid[1]):
            distance = abs(ratio - w / h)
            large_enough = area > 0.5 * self.image_size**2 * w * h
            if distance < nearest or (distance == nearest and large_enough):
                best, nearest = (w, h), distance
        return best[1], best[0]
