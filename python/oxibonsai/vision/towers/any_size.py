"""Parts of towers that read images of any size, in whole squares of patches that become one row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError
from oxibonsai.graph import AxialRope
from oxibonsai.models.keys import Keys
from oxibonsai.vision.config import VisionConfig, read_square
from oxibonsai.vision.image import PixelGrid
from oxibonsai.vision.patches import Floats, patches_of
from oxibonsai.vision.processors import Qwen2VLProcessor

THETA = 10000.0
_FRAMES = 2  # that one patch covers; of a picture both are the same


class AnySize:
    """Sizes and patches of a picture.

    Args:
        keys: Of the file.
        config: Of the tower.
        min_pixels: Of a picture, where the file does not say.
        max_pixels: Likewise.
    """

    def __init__(self, keys: Keys, config: VisionConfig, min_pixels: int, max_pixels: int) -> None:
        self.config = config
        self.merge = read_square(keys, "vision.spatial_merge_size", 2)
        self.rope = AxialRope((config.head_dim // 2, config.head_dim // 2), THETA)
        self.processor = Qwen2VLProcessor(
            patch_size=config.patch_size,
            merge_size=self.merge,
            min_pixels=keys.integer("vision.image_min_pixels", min_pixels),
            max_pixels=keys.integer("vision.image_max_pixels", max_pixels),
            image_mean=config.image_mean,
            image_std=config.image_std,
        )

    def grid(self, pixels: PixelGrid) -> tuple[int, int]:
        """Rows and columns of patches; RequestError where the picture has other sides."""
        tiles, _, height, width = pixels.pixels.shape
        whole = self.config.patch_size * self.merge
        if tiles != 1 or height % whole != 0 or width % whole != 0:
            raise RequestError(
                f"{tiles} tiles of {width} x {height} pixels; this tower reads one whose sides are "
                f"multiples of {whole}"
            )
        return height // self.config.patch_size, width // self.config.patch_size

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = self.grid(pixels)
        return rows * cols // self.merge**2

    def patches(self, pixels: PixelGrid, order: npt.NDArray[np.int64]) -> Floats:
        """Patches in an order, with both frames: float32 [patches, 2 * 3 * size * size]."""
        patches = patches_of(pixels.pixels[0], self.config.patch_size)
        return np.tile(patches.reshape(len(order), -1)[order], (1, _FRAMES))

    def positions(self, pixels: PixelGrid, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Row and column of each patch: int32 [patches, 2]."""
        at = np.indices(self.grid(pixels), dtype=np.int32).reshape(2, -1).T
        return np.ascontiguousarray(at[order])

    def token_grid(self, pixels: PixelGrid) -> tuple[int, int, int]:
        """Frames, rows and columns of what a picture becomes."""
        rows, cols = self.grid(pixels)
        return 1, rows // self.merge, cols // self.merge
