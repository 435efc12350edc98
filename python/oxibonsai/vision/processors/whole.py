"""Processors that read an image whole: in one size, or in its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oxibonsai.errors import RequestError
from oxibonsai.vision.decoding import DecodedImage
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.processors.processor import (
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    Channels,
    Filter,
    PixelBounds,
    Size,
    as_pixels,
    check_size,
    resize,
)

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Gemma3Processor:
    """Gemma 3: one square tile, whatever the image's ratio, without pan and scan.

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

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        resized = resize(image.image, (self.image_size, self.image_size), self.resample)
        pixels = as_pixels([resized], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=image.size)


@dataclass(frozen=True)
class LlavaProcessor:
    """LLaVA 1.5: the middle square of an image, as CLIP reads it.

    The shorter side is resized, what is too much of the longer one cut off.

    Attributes:
        image_size: Side of the tile in pixels.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
        pads: Put the image into a square of the mean colour first, so that nothing is cut off.
    """

    image_size: int = 336
    image_mean: Channels = CLIP_MEAN
    image_std: Channels = CLIP_STD
    pads: bool = False

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        side = self.image_size
        resized = self._squared(image) if self.pads else image.image
        height, width = resized.height, resized.width
        longer = int(side * max(height, width) / min(height, width))
        size = (longer, side) if width <= height else (side, longer)
        resized = resize(resized, size, "BICUBIC")
        top, left = (resized.height - side) // 2, (resized.width - side) // 2
        tile = resized.crop((left, top, left + side, top + side))
        pixels = as_pixels([tile], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=image.size)

    def _squared(self, image: DecodedImage) -> Image.Image:
        from PIL import Image

        height, width = image.size
        side = max(height, width)
        red, green, blue = (int(mean * 255) for mean in self.image_mean)
        check_size(image.image, (side, side))
        square = Image.new("RGB", (side, side), (red, green, blue))
        square.paste(image.image, ((side - width) // 2, (side - height) // 2))
        return square


@dataclass(frozen=True)
class PixtralProcessor:
    """Pixtral and Mistral Small 3: any size, reduced to a longest side, of whole patches.

    The result is one tile; small images stay small.

    Attributes:
        longest_edge: Larger images are reduced to it, in pixels.
        patch_size: Side of what becomes one token, in pixels: of merged patches together.
        image_mean: Of the channels, for values from 0 to 1.
        image_std: Standard deviation of the channels.
        bounds: On the tokens of an image; None: as in the model's own processor.
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

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        height, width = image.size
        ratio = max(height / self.longest_edge, width / self.longest_edge)
        if ratio > 1:
            height, width = int(height / ratio), int(width / ratio)
        unit = self.patch_size
        rows, columns = -(-height // unit), -(-width // unit)
        if self.bounds is not None and rows * columns > 0:
            # The least number of tokens must not make a long image longer than the model reads.
            fitted = self.bounds.fit((height, width), (rows, columns))
            rows, columns = (min(n, -(-self.longest_edge // unit)) for n in fitted)
        resized = resize(image.image, (rows * unit, columns * unit), "BICUBIC")
        pixels = as_pixels([resized], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=image.size)


_MOST_RATIO = 200


@dataclass(frozen=True)
class Qwen2VLProcessor:
    """Qwen2-VL, Qwen2.5-VL and Qwen3-VL: one tile near the image's own size, of whole patches.

    Attributes:
        patch_size: Side of a patch in pixels.
        merge_size: Patches that become one token, on each axis.
        min_pixels: Smaller images are enlarged.
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

    def prepare(self, image: DecodedImage) -> PixelGrid:
        """See :class:`oxibonsai.vision.processors.processor.ImageProcessor`."""
        resized = resize(image.image, self._target(image.size), "BICUBIC")
        pixels = as_pixels([resized], self.image_mean, self.image_std)
        return PixelGrid(pixels, original_size=image.size)

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


@dataclass(frozen=True)
class Glm4VProcessor(Qwen2VLProcessor):
    """GLM-4.1V, 4.5V and 4.6V: as Qwen2-VL, after a side shorter than a token was brought to its length.

    The models' own processor counts the pixels of two equal frames; the bounds here are those of one.
    """

    min_pixels: int = 112 * 112 // 2
    max_pixels: int = 28 * 28 * 15000 // 2

    def _target(self, size: Size) -> Size:
        """Return what :class:`Qwen2VLProcessor` does, of the lengthened size."""
        unit = self.patch_size * self.merge_size
        scale = max(unit / min(size), 1.0)
        return super()._target((int(size[0] * scale), int(size[1] * scale)))
