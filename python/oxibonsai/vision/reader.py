"""Read the images of a conversation within limits, before a tower encodes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.vision.decoding import DecodedImage, ImageLimits
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.image_input import Fetch, image_of_part
from oxibonsai.vision.processors import ImageProcessor, PixtralProcessor, Qwen2VLProcessor

Count = Callable[[int], None]  # told a number of tokens; may refuse it
_MOST_WAITING = 256


class ImageTower(Protocol):
    """The protocol of a tower for a reader."""

    @property
    def processor(self) -> ImageProcessor:
        """Return what prepares images for it."""
        ...

    @property
    def marker(self) -> str:
        """Return the text that stands for an image in a rendered chat template."""
        ...

    @property
    def written(self) -> str:
        """The marker with what the model's own template writes around it."""
        ...

    @property
    def placeholder(self) -> int:
        """Id that stands for a row of an image in a prompt."""
        ...

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """Return the marker's replacement: texts, and numbers of rows."""
        ...

    def encode(self, pixels: PixelGrid) -> list[str | ImageEmbedding]:
        """Return the marker's replacement."""
        ...


@dataclass(frozen=True)
class ImageReader:
    """Reads images one after the other, whoever sends them, so that their memory is bounded.

    Attributes:
        tower: Of the model.
        processor: Prepares images for the tower.
        limits: Of each image.
        most_images: In one conversation.
        fetch: Gets images from the web; None: nothing is fetched.
        queue: Where they wait for each other.
    """

    tower: ImageTower
    processor: ImageProcessor
    limits: ImageLimits = field(default_factory=ImageLimits)
    most_images: int = 32
    fetch: Fetch | None = None
    queue: SerialQueue = field(
        default_factory=lambda: SerialQueue("pictures to read", _MOST_WAITING), repr=False
    )

    @classmethod
    def of_tower(cls, tower: ImageTower) -> ImageReader:
        """Return a reader with the tower's own processor and the default limits."""
        return cls(tower, tower.processor)

    def with_tokens(self, least: int | None, most: int | None) -> ImageReader:
        """Return a reader with other bounds on the tokens of an image; None: as it is.

        Raises:
            UnsupportedError: All images of this model have one size.
            RequestError: The bounds exclude each other.
        """
        if least is None and most is None:
            return self
        if not isinstance(self.processor, Qwen2VLProcessor | PixtralProcessor):
            raise UnsupportedError(
                "--image-min-tokens and --image-max-tokens are for models that read pictures in their "
                "own size (Qwen-VL, GLM-V, Pixtral); this one cuts or resizes them to squares of one size, "
                "each of which has its number of tokens: leave them out"
            )
        return replace(self, processor=self.processor.with_tokens(least, most))

    def check_count(self, images: int) -> None:
        """RequestError where a conversation has too many."""
        if images > self.most_images:
            raise RequestError(
                f"the conversation has {images} pictures, more than {self.most_images}: leave some "
                "out"
            )

    def read_part(
        self, part: Mapping[str, Any], count: Count | None = None
    ) -> list[str | ImageEmbedding]:
        """Return an image of a message as it stands in a prompt.

        Args:
            part: See :func:`oxibonsai.vision.image_input.image_of_part`.
            count: Told the tokens of the image before the tower runs; what it raises ends the work.

        Raises:
            RequestError: There is no such image, it is damaged, past a limit, or nothing for this
                model.
        """
        with self.queue.turn(None if count is None else lambda: count(0)):
            return self.read(image_of_part(part, self.limits, self.fetch), count)

    def read(self, image: DecodedImage, count: Count | None = None) -> list[str | ImageEmbedding]:
        """Return the same as :meth:`read_part`, of an image that is decoded already."""
        pixels = self.processor.prepare(image)
        if count is not None:
            count(sum(part for part in self.tower.layout(pixels) if isinstance(part, int)))
        return self.tower.encode(pixels)
