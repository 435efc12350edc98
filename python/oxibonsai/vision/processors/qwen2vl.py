"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: any size, rounded to whole patches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oxibonsai.errors import RequestError
from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import (
    CLIP_MEAN,
    CLIP_STD,
    Channels,
    PixelBounds,
    Size,
    as_pixels,
    resize,
)

_MOST_RATIO = 200


@dataclass(frozen=True)
class Qwen2VLProcessor:
    """One tile, near the picture's own size.

    Attributes:
        patch_size: Side of a patch in pixels.
        merge_size: Patches that become one token, on each axis.
        min_pixels: Smaller pictures are enlarged.
        max_pixels: Larger ones are reduced.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    patch_size: int = 14
    merge_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    image_mean: Channels = CLIP_MEAN
    image_std: Channels = CLIP_STD

    @property
    def _bounds(self) -> PixelBounds:
        return PixelBounds(self.patch_size * self.merge_size, self.min_pixels, self.max_pixels)

    def with_tokens(self, least: int | None, most: int | None) -> Qwen2VLProcessor:
        """Return a processor with other bounds, in tokens of an image; None: as it is."""
        bounds = self._bounds.with_tokens(least, most)
        return replace(self, min_pixels=bounds.least, max_pixels=bounds.most)

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        image = resize(picture.image, self._target(picture.size), "BICUBIC")
        pixels = as_pixels([image], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=picture.size)

    def _target(self, size: Size) -> Size:
        """Return the nearest size of whole tokens within the bounds, about in the same ratio."""
        height, width = size
        unit = self.patch_size * self.merge_size
        ratio = max(size) / min(size)
        if ratio > _MOST_RATIO:
            raise RequestError(
                f"the picture is {ratio:.0f} times as long as wide; this model reads pictures up to "
                f"{_MOST_RATIO}: cut it"
            )
        tokens = round(height / unit), round(width / unit)
        rows, columns = self._bounds.fit(size, tokens)
        return rows * unit, columns * unit
