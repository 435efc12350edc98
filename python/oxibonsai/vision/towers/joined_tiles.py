"""Square tiles of an image, of which each square of patches becomes one row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oxibonsai.models.keys import Keys
from oxibonsai.vision.config import VisionConfig, read_square
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, merge_order, patches_of
from oxibonsai.vision.towers.family import count_tiles

_MOST_TILES = 64  # published models have 16 at most; the grids to choose from grow with the square


def read_max_tiles(keys: Keys, default: int) -> int:
    """Return the most tiles of a grid that a file asks for."""
    count = keys.integer("vision.preproc_max_tiles", default)
    if count > _MOST_TILES:
        raise keys.fail(f"clip.vision.preproc_max_tiles is {count}, above {_MOST_TILES}")
    return count


class JoinedTiles:
    """The patches of tiles, and the rows that they become.

    Args:
        keys: Of the file, which say how many patches on each axis become one row.
        config: Of the tower.
        default: So many where the file does not say; None: that is an error.

    Attributes:
        patches_per_row: Patches that become one row.
        rows_of_tile: Rows that a tile becomes.
    """

    def __init__(self, keys: Keys, config: VisionConfig, default: int | None = None) -> None:
        self._config = config
        self._joined = read_square(keys, "vision.projector.scale_factor", default, config.side)
        self.patches_per_row = self._joined**2
        self.rows_of_tile = (config.side // self._joined) ** 2

    def count_rows(self, pixels: PixelGrid) -> int:
        """Return the rows of an image; RequestError where it was prepared for another tower."""
        return count_tiles(pixels, self._config.image_size) * self.rows_of_tile

    def patches(self, tile: Floats) -> Floats:
        """Cut a tile: float32 [patches, channels * size * size]."""
        return patches_of(tile, self._config.patch_size).reshape(self._config.side**2, -1)

    def join(self, hidden: Floats) -> Floats:
        """Join the patches of each square: float32 [rows, patches of a row * hidden]."""
        order = merge_order(self._config.side, self._config.side, self._joined)
        return np.ascontiguousarray(hidden[order]).reshape(self.rows_of_tile, -1)


def embed_tiles(
    pixels: PixelGrid, digest: bytes, encode: Callable[[Floats], Floats]
) -> list[ImageEmbedding]:
    """Return an embedding for each tile, each under a name of its own."""
    return [
        ImageEmbedding(encode(tile), digest + i.to_bytes(4, "little"))
        for i, tile in enumerate(pixels.pixels)
    ]
