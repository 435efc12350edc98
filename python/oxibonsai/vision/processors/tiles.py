"""Processors that cut an image into tiles, with an overview."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import rounded
from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import (
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    Channels,
    Size,
    as_pixels,
    check_size,
    cut,
    look_up,
    resize,
)

_LONGEST = 4096  # of any image, in pixels


@dataclass(frozen=True)
class Idefics3Processor:
    """Idefics 3 and SmolVLM: tiles of an image that is brought to one length, then an overview.

    The tiles come row by row; the overview comes alone where one tile is enough.

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

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        side = self.image_size
        resized = resize(image.image, self._scaled(image.size), "LANCZOS")
        rows = columns = 1
        if self.splits:
            rows, columns = self._grid((resized.height, resized.width))
            resized = resize(resized, (rows * side, columns * side), "LANCZOS")
        tiles = [resize(resized, (side, side), "LANCZOS")]
        if rows * columns > 1:
            tiles = [*cut(resized, rows, columns), *tiles]
        pixels = as_pixels(tiles, self.image_mean, self.image_std)
        return PixelGrid(pixels, (rows, columns), image.size)

    def _scaled(self, size: Size) -> Size:
        """Return the image with its longer side as asked, the shorter one even, both within bounds."""
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
        """Return rows and columns of tiles that hold an image."""
        height, width = size
        side, ratio = self.image_size, width / height
        if width >= height:
            columns = math.ceil(width / side)
            return math.ceil(int(columns * side / ratio) / side), columns
        rows = math.ceil(height / side)
        return rows, math.ceil(int(rows * side * ratio) / side)


IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InternVLProcessor:
    """InternVL: tiles in the grid whose ratio is nearest to the image's, then an overview.

    The tiles come row by row; one tile comes alone where the grid has one.

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

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        side = self.image_size
        rows, columns = self._grid(image.size)
        tiles = cut(resize(image.image, (rows * side, columns * side), "BICUBIC"), rows, columns)
        if len(tiles) > 1:
            tiles.append(resize(image.image, (side, side), "BICUBIC"))
        pixels = as_pixels(tiles, self.image_mean, self.image_std)
        return PixelGrid(pixels, (rows, columns), image.size)

    def _grid(self, size: Size) -> Size:
        """Return rows and columns; among grids of one ratio the largest of which half is filled."""
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


@dataclass(frozen=True)
class Llama4Processor:
    """Llama 4: tiles of the image in the grid that enlarges it least, black behind it, then an overview.

    The tiles come row by row; one tile comes alone where the grid has one. The model's own processor
    has no Pillow backend: torchvision's resizing, which it uses, differs by up to one of 255 levels.

    Attributes:
        image_size: Side of a tile in pixels.
        max_tiles: Of a grid.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    image_size: int = 336
    max_tiles: int = 16
    image_mean: Channels = HALF
    image_std: Channels = HALF

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        from PIL import Image

        side = self.image_size
        rows, columns = self.grid(image.size)
        target = rows * side, columns * side
        fitted = resize(image.image, self.fitted(image.size, target), "BILINEAR")
        padded = Image.new("RGB", (target[1], target[0]))
        padded.paste(fitted, (0, 0))
        tiles = cut(padded, rows, columns)
        if len(tiles) > 1:
            tiles.append(resize(image.image, (side, side), "BILINEAR"))
        pixels = look_up(tiles, self._table())
        return PixelGrid(pixels, (rows, columns), image.size)

    def grid(self, size: Size) -> Size:
        """Return rows and columns of tiles: the least enlargement, else the least reduction.

        Among equals the grid of the fewest tiles. In float32, as the model's own processor.
        """
        height, width = (np.float32(n) for n in size)
        sides = range(1, self.max_tiles + 1)
        scales = {
            (h, w): min(
                np.float32(h * self.image_size) / height, np.float32(w * self.image_size) / width
            )
            for h in sides
            for w in sides
            if h * w <= self.max_tiles
        }
        enlarging = [scale for scale in scales.values() if scale >= 1]
        chosen = min(enlarging) if enlarging else max(scales.values())
        fitting = (grid for grid, scale in scales.items() if scale == chosen)
        return min(fitting, key=lambda grid: grid[0] * grid[1])

    def fitted(self, size: Size, target: Size) -> Size:
        """Return the largest size of the image's ratio in a target; no side grows beyond a tile's."""
        reached = [max(n, self.image_size) for n in size]
        # What the target bounds, the model's own processor computes in float32.
        kinds = [np.float64 if r <= t else np.float32 for r, t in zip(reached, target, strict=True)]
        height, width = (min(r, t) for r, t in zip(reached, target, strict=True))
        by_height, by_width = kinds[0](height) / size[0], kinds[1](width) / size[1]
        common = np.float32 if np.float32 in kinds else np.float64
        if common(by_width) < common(by_height):
            scaled = int(kinds[1](size[0]) * by_width)
            return max(min(scaled, height), 1), max(width, 1)
        scaled = int(kinds[0](size[1]) * by_height)
        return max(height, 1), max(min(scaled, width), 1)

    def _table(self) -> npt.NDArray[np.float32]:
        """Return what each level becomes, rounded to bfloat16 after each step."""
        as_bfloat16 = partial(rounded, dtype="BF16")
        levels = np.arange(256, dtype=np.float32)[:, None] * np.float32(1 / 255)
        mean, std = (
            as_bfloat16(np.array(v, np.float32)) for v in (self.image_mean, self.image_std)
        )
        return as_bfloat16(as_bfloat16(as_bfloat16(levels) - mean) / std)


@dataclass(frozen=True)
class LlavaNextProcessor:
    """LLaVA 1.6: an overview, then tiles of the image in the best of some resolutions, row by row.

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

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        from PIL import Image

        side = self.image_size
        height, width = self.best_resolution(image.size)
        fitted = resize(image.image, _fitted(image.size, (height, width)), "BICUBIC")
        check_size(image.image, (height, width))
        padded = Image.new("RGB", (width, height))
        padded.paste(fitted, ((width - fitted.width) // 2, (height - fitted.height) // 2))
        rows, columns = height // side, width // side
        overview = resize(image.image, (side, side), "BICUBIC")
        tiles = [overview, *cut(padded, rows, columns)]
        pixels = as_pixels(tiles, self.image_mean, self.image_std)
        return PixelGrid(pixels, (rows, columns), image.size)

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
