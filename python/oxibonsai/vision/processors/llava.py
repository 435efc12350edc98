"""LLaVA 1.5: the middle square of a picture, as CLIP reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import (
    CLIP_MEAN,
    CLIP_STD,
    Channels,
    as_pixels,
    check_size,
    resize,
)

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class LlavaProcessor:
    """One square tile: the shorter side is resized, what is too much of the longer one cut off.

    Attributes:
        image_size: Side of the tile in pixels.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
        pads: Put the picture into a square of the mean colour first, so that nothing is cut off.
    """

    image_size: int = 336
    image_mean: Channels = CLIP_MEAN
    image_std: Channels = CLIP_STD
    pads: bool = False

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        side = self.image_size
        image = self._squared(picture) if self.pads else picture.image
        height, width = image.height, image.width
        longer = int(side * max(height, width) / min(height, width))
        size = (longer, side) if width <= height else (side, longer)
        image = resize(image, size, "BICUBIC")
        top, left = (image.height - side) // 2, (image.width - side) // 2
        tile = image.crop((left, top, left + side, top + side))
        pixels = as_pixels([tile], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=picture.size)

    def _squared(self, picture: DecodedImage) -> Image.Image:
        from PIL import Image

        height, width = picture.size
        side = max(height, width)
        red, green, blue = (int(mean * 255) for mean in self.image_mean)
        check_size(picture.image, (side, side))
        square = Image.new("RGB", (side, side), (red, green, blue))
        square.paste(picture.image, ((side - width) // 2, (side - height) // 2))
        return square
