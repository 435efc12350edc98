"""Gemma 3: every picture in one size, without pan and scan."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import HALF, Channels, Filter, as_pixels, resize


@dataclass(frozen=True)
class Gemma3Processor:
    """One square tile, whatever the picture's ratio.

    Attributes:
        image_size: Side of the tile in pixels.
        resample: How it is resized.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
    """

    image_size: int
    resample: Filter = "BILINEAR"
    image_mean: Channels = HALF
    image_std: Channels = HALF

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        image = resize(picture.image, (self.image_size, self.image_size), self.resample)
        pixels = as_pixels([image], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=picture.size)
