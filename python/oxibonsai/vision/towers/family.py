"""What a family of towers is to everybody else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.processors import ImageProcessor


def filled(
    layout: Iterable[str | int], embeddings: Iterable[ImageEmbedding]
) -> list[str | ImageEmbedding]:
    """A layout with embeddings in place of the numbers of their rows."""
    following = iter(embeddings)
    return [next(following) if isinstance(part, int) else part for part in layout]


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
        """Prepares pictures."""
        ...

    @property
    def width(self) -> int:
        """Columns of a row."""
        ...

    def count_rows(self, pixels: PixelGrid) -> int:
        """Positions that a picture takes; RequestError where it is none for this tower."""
        ...

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """What takes the place of the marker: texts, and numbers of rows."""
        ...

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """What takes the place of the marker.

        Args:
            pixels: The picture.
            digest: Names it and the tower.
        """
        ...
