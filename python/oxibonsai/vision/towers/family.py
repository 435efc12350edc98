"""The interface of a family of towers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from oxibonsai.errors import RequestError
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.processors import ImageProcessor


def filled(
    layout: Iterable[str | int], embeddings: Iterable[ImageEmbedding]
) -> list[str | ImageEmbedding]:
    """Return a layout with embeddings in place of the numbers of their rows."""
    following = iter(embeddings)
    return [next(following) if isinstance(part, int) else part for part in layout]


def count_tiles(pixels: PixelGrid, size: int) -> int:
    """Squares of ``size`` pixels that an image was cut into, with one of the whole where they are more.

    Raises:
        RequestError: It was prepared for another tower.
    """
    tiles, _, height, width = pixels.pixels.shape
    rows, cols = pixels.tiles
    if (height, width) != (size, size) or tiles not in (1, rows * cols + 1):
        raise RequestError(
            f"{tiles} tiles of {width} x {height} pixels in {rows} rows of {cols}; this tower reads "
            f"one of {size} x {size}, or more and one of the whole picture"
        )
    return int(tiles)


class Family(Protocol):
    """One tower's passes, and what surrounds its rows in a prompt.

    A class of it is made of the file's keys, its tensors and a device; it reads every key and tensor
    that it knows, and the caller refuses the others.
    """

    marker: str
    written: str  # the marker with what the model's template writes around it
    placeholder: str

    @property
    def processor(self) -> ImageProcessor:
        """Return what prepares images."""
        ...

    @property
    def width(self) -> int:
        """Return the columns of a row."""
        ...

    def count_rows(self, pixels: PixelGrid) -> int:
        """Return the positions that an image takes; RequestError where it is none for this tower."""
        ...

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """Return the marker's replacement: texts, and numbers of rows."""
        ...

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """Return the marker's replacement.

        Args:
            pixels: The image.
            digest: Names it and the tower.
        """
        ...
