"""Pixtral and Mistral Small 3: any size, reduced to a longest side, of whole patches."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.pictures import Picture
from oxibonsai.vision.processors.processor import (
    CLIP_MEAN,
    CLIP_STD,
    Channels,
    as_pixels,
    resize,
)


@dataclass(frozen=True)
class PixtralProcessor:
    """One tile; small pictures stay small.

    Attributes:
        longest_edge: Larger pictures are reduced to it, in pixels.
        patch_size: Side of what becomes one token, in pixels: of merged patches together.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    longest_edge: int = 1024
    patch_size: int = 16
    image_mean: Channels = CLIP_MEAN
    image_std: Channels = CLIP_STD

    def prepare(self, picture: Picture) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        height, width = picture.size
        ratio = max(height / self.longest_edge, width / self.longest_edge)
        if ratio > 1:
            height, width = int(height / ratio), int(width / ratio)
        unit = self.patch_size
        size = (-(-height // unit) * unit, -(-width // unit) * unit)
        image = resize(picture.image, size, "BICUBIC")
        pixels = as_pixels([image], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=picture.size)
