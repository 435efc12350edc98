"""A picture before and behind a tower, and its place in a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PixelGrid:
    """One picture as a tower reads it.

    Attributes:
        pixels: float32 [tiles, 3, height, width], normalised by the model's mean and deviation. In the
            order of the model's own processor: an overview of the whole picture stands where that has
            it (first in LLaVA 1.6, last in Idefics 3 and InternVL).
        tiles: Rows and columns of tiles, an overview left aside; (1, 1) where the picture is one tile.
        original_size: Height and width of the picture before it was resized, in pixels.
    """

    pixels: Floats
    tiles: tuple[int, int] = (1, 1)
    original_size: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        p = self.pixels
        if p.dtype != np.float32 or p.ndim != 4 or p.shape[1] != 3 or 0 in p.shape:
            raise RequestError(
                f"pixels are {p.dtype} {list(p.shape)}; a picture is float32 [tiles, 3, height, width]"
            )
        if not np.isfinite(p).all():
            raise RequestError("a picture has pixels that are not finite")

    def digest(self) -> bytes:
        """Names the content."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.pixels.shape, self.tiles, self.original_size)).encode())
        digest.update(np.ascontiguousarray(self.pixels).tobytes())
        return digest.digest()


@dataclass(frozen=True, eq=False)
class ImageEmbedding:
    """Rows of a picture, or of a tile of it, that follow each other in a prompt.

    Attributes:
        rows: float32 [n, width].
        digest: Names what they were computed from: the pixels, the tower, and which part they are.
            It stands for their tokens in the prefix cache.
        grid: Frames, rows and columns of M-RoPE's positions, with a product of n; None: the rows take
            the positions of n tokens.
        sees_itself: The rows see each other, also those behind them (Gemma 3); else the earlier ones,
            as tokens do.
    """

    rows: Floats
    digest: bytes
    grid: tuple[int, int, int] | None = None
    sees_itself: bool = False

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class PlacedImage:
    """An embedding at a place of a prompt.

    Attributes:
        first: Index of the token that stands for its first row.
        embedding: As encoded.
    """

    first: int
    embedding: ImageEmbedding = field(repr=False)

    @property
    def end(self) -> int:
        """Index of the first token behind it."""
        return self.first + len(self.embedding)


def place(
    parts: Iterable[Items[int] | ImageEmbedding], placeholder: int
) -> tuple[list[int], tuple[PlacedImage, ...]]:
    """Join token ids and pictures to a prompt.

    Args:
        parts: Runs of token ids, and embeddings.
        placeholder: Id that stands for each row of an embedding.

    Returns:
        The ids of the prompt, and where in it the embeddings are.
    """
    ids: list[int] = []
    images: list[PlacedImage] = []
    for part in parts:
        if isinstance(part, ImageEmbedding):
            images.append(PlacedImage(len(ids), part))
            ids += [placeholder] * len(part)
        else:
            ids += part
    return ids, tuple(images)
