"""An image before and behind a tower, and its place in a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PixelGrid:
    """One image as a tower reads it.

    Attributes:
        pixels: float32 [tiles, 3, height, width], normalised by the model's mean and deviation. In the
            order of the model's own processor: an overview of the whole image stands where that has
            it (first in LLaVA 1.6, last in Idefics 3 and InternVL).
        tiles: Rows and columns of tiles, an overview left aside; (1, 1) where the image is one tile.
        original_size: Height and width of the image before it was resized, in pixels.
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
        """Name the content."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.pixels.shape, self.tiles, self.original_size)).encode())
        digest.update(np.ascontiguousarray(self.pixels).tobytes())
        return digest.digest()


class LateRows:
    """Rows that are computed when they are first read, and kept.

    Args:
        count: How many there are.
        encode: Computes them.
    """

    def __init__(self, count: int, encode: Callable[[], Floats]) -> None:
        self._count, self._encode = count, encode
        self._rows: Floats | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def is_computed(self) -> bool:
        """Whether they were read before."""
        return self._rows is not None

    def read(self) -> Floats:
        """Return the rows."""
        if self._rows is None:
            self._rows = self._encode()
        return self._rows


@dataclass(frozen=True, eq=False)
class ImageEmbedding:
    """Rows of an image, or of a tile of it, that follow each other in a prompt.

    Attributes:
        held: float32 [n, width], or what computes them when they are first read.
        digest: Names what they were computed from: the pixels, the tower, and which part they are.
            It stands for their tokens in the prefix cache.
        grid: Frames, rows and columns of M-RoPE's positions, with a product of n; None: the rows take
            the positions of n tokens.
        sees_itself: The rows see each other, also those behind them (Gemma 3); else the earlier ones,
            as tokens do.
    """

    held: Floats | LateRows
    digest: bytes
    grid: tuple[int, int, int] | None = None
    sees_itself: bool = False

    def __len__(self) -> int:
        return len(self.held)

    @property
    def rows(self) -> Floats:
        """Return float32 [n, width]."""
        return self.held.read() if isinstance(self.held, LateRows) else self.held

    @property
    def is_encoded(self) -> bool:
        """Whether the rows are there, so that no tower has to run for them."""
        return not isinstance(self.held, LateRows) or self.held.is_computed


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
    """Join token ids and images to a prompt.

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
