"""Pixtral and Mistral Small 3: any size, reduced to a longest side, of whole patches."""

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
        bounds: On the tokens of a picture; None: as in the model's own processor.
    """

    longest_edge: int = 1024
    patch_size: int = 16
    image_mean: Channels = CLIP_MEAN
    image_std: Channels = CLIP_STD
    bounds: PixelBounds | None = None

    def with_tokens(self, least: int | None, most: int | None) -> PixtralProcessor:
        """Return a processor with bounds on the tokens of an image; None: no bound."""
        area = self.patch_size**2
        unbounded = PixelBounds(self.patch_size, 0, self.longest_edge**2)
        bounds = (self.bounds or unbounded).with_tokens(least, most)
        if bounds.least > self.longest_edge**2:
            raise RequestError(
                f"this model reads pictures of up to {self.longest_edge**2 // area} tokens, and "
                f"--image-min-tokens is {bounds.least // area}: set a smaller one"
            )
        return replace(self, bounds=bounds)

    def prepare(self, picture: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        height, width = picture.size
        ratio = max(height / self.longest_edge, width / self.longest_edge)
        if ratio > 1:
            height, width = int(height / ratio), int(width / ratio)
        unit = self.patch_size
        rows, columns = -(-height // unit), -(-width // unit)
        if self.bounds is not None and rows * columns > 0:
            # The least number of tokens must not make a long picture longer than the model reads.
            fitted = self.bounds.fit((height, width), (rows, columns))
            rows, columns = (min(n, -(-self.longest_edge // unit)) for n in fitted)
        image = resize(picture.image, (rows * unit, columns * unit), "BICUBIC")
        pixels = as_pixels([image], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=picture.size)
