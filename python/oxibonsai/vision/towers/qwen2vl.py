"""Qwen2-VL and Qwen2.5-VL: images of any size.

Qwen2.5-VL's layers attend within windows of the image, but for every n-th; its patches go window
after window.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from oxibonsai.devices import Device
from oxibonsai.errors import RequestError
from oxibonsai.graph import AxialRope, Builder, Value
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import VisionConfig, read_square, read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, merge_order, patches_of, window_order
from oxibonsai.vision.processors import Qwen2VLProcessor

THETA = 10000.0
_FRAMES = 2  # that one patch covers; of an image both are the same


class AnySize:
    """Sizes and patches of an image.

    Args:
        keys: Of the file.
        config: Of the tower.
        min_pixels: Of an image, where the file does not say.
        max_pixels: Likewise.
        processor: Of the family.
    """

    def __init__(
        self,
        keys: Keys,
        config: VisionConfig,
        min_pixels: int,
        max_pixels: int,
        processor: type[Qwen2VLProcessor] = Qwen2VLProcessor,
    ) -> None:
        self.config = config
        self.merge = read_square(keys, "vision.spatial_merge_size", 2)
        self.rope = AxialRope((config.head_dim // 2, config.head_dim // 2), THETA)
        self.processor = processor(
            patch_size=config.patch_size,
            merge_size=self.merge,
            min_pixels=keys.integer("vision.image_min_pixels", min_pixels),
            max_pixels=keys.integer("vision.image_max_pixels", max_pixels),
            image_mean=config.image_mean,
            image_std=config.image_std,
        )

    def grid(self, pixels: PixelGrid) -> tuple[int, int]:
        """Return rows and columns of patches; RequestError where the image has other sides."""
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
        """Return patches in an order, with both frames: float32 [patches, 2 * 3 * size * size]."""
        patches = patches_of(pixels.pixels[0], self.config.patch_size)
        return np.tile(patches.reshape(len(order), -1)[order], (1, _FRAMES))

    def positions(self, pixels: PixelGrid, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Row and column of each patch: int32 [patches, 2]."""
        at = np.indices(self.grid(pixels), dtype=np.int32).reshape(2, -1).T
        return np.ascontiguousarray(at[order])

    def token_grid(self, pixels: PixelGrid) -> tuple[int, int, int]:
        """Return frames, rows and columns of what an image becomes."""
        rows, cols = self.grid(pixels)
        return 1, rows // self.merge, cols // self.merge


# What the models' own processor has where the file does not say: pixels of an image.
_MIN_PIXELS, _MAX_PIXELS = 56 * 56, 3584 * 3584
_WINDOW_PIXELS = 112
_WINDOWS = "windows"


class Qwen2VLTower:
    """See :class:`oxibonsai.vision.towers.family.Family`.

    Args:
        keys: Of the file.
        w: Its tensors.
        device: Runs it.
        windowed: Of Qwen2.5-VL: windows, RMSNorms and MLPs with a gate.
    """

    marker = placeholder = "<|image_pad|>"
    written = "<|vision_start|><|image_pad|><|vision_end|>"

    def __init__(self, keys: Keys, w: Weights, device: Device, *, windowed: bool) -> None:
        self._config = c = read_vision(keys)
        self._sizes = AnySize(keys, c, _MIN_PIXELS, _MAX_PIXELS)
        self._period, self._window = 1, 0  # every layer sees the whole image
        self._windowed = windowed
        if windowed:
            keys.flag("use_silu", True)
            self._period = keys.integer("vision.n_wa_pattern")
            side = keys.integer("vision.window_size", _WINDOW_PIXELS)
            self._window = max(side // c.patch_size // self._sizes.merge, 1)
        self.width = c.projection_dim
        self.processor = self._sizes.processor
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._merger = t.Pass(self._describe_merger(w), w, device)

    def _norm(self, g: Builder, w: Weights, x: Value, name: str) -> Value:
        if self._windowed:
            return t.rms_norm(g, self._config, w, x, name)
        return t.layer_norm(g, self._config, w, x, name)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight", "v.patch_embd.weight.1")
        (h,) = g.linear(g.input("patches", kernels.cols), kernels)
        for i in range(c.num_hidden_layers):
            b = f"v.blk.{i}"
            whole = (i + 1) % self._period == 0
            x = self._norm(g, w, h, f"{b}.ln1")
            segments = "" if whole else _WINDOWS
            a = t.attention(g, c, w, x, i, rope=self._sizes.rope, segments=segments)
            h = t.linear(g, w, a, f"{b}.attn_out", c.hidden_size, add=h)
            x = self._feed_forward(g, w, self._norm(g, w, h, f"{b}.ln2"), b)
            h = t.linear(g, w, x, f"{b}.ffn_down", c.hidden_size, add=h)
        g.output("hidden", self._norm(g, w, h, "v.post_ln"))
        return g

    def _feed_forward(self, g: Builder, w: Weights, x: Value, b: str) -> Value:
        """Up to the matrix back to the hidden states."""
        # llama.cpp's converter writes the language model's width as Qwen2-VL's feed_forward_length.
        ff = w.rows(f"{b}.ffn_up")
        up = t.linear(g, w, x, f"{b}.ffn_up", ff)
        if self._windowed:
            return g.swiglu(t.linear(g, w, x, f"{b}.ffn_gate", ff), up)
        return t.quick_gelu(g, up)

    def _describe_merger(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        wide = c.hidden_size * self._sizes.merge**2
        x = g.gelu(t.linear(g, w, g.input("hidden", wide), "mm.0", wide))
        g.output("rows", t.linear(g, w, x, "mm.2", c.projection_dim))
        return g

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return self._sizes.count_rows(pixels)

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return [self.count_rows(pixels)]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = self._sizes.grid(pixels)
        order = merge_order(rows, cols, self._sizes.merge)
        count, merged = self.count_rows(pixels), self._sizes.merge**2
        segments: dict[str, list[int]] = {}
        windows = np.arange(count)
        if self._period > 1:
            _, token_rows, token_cols = self._sizes.token_grid(pixels)
            windows, counts = window_order(token_rows, token_cols, self._window)
            segments[_WINDOWS] = [n * merged for n in counts]
        order = order.reshape(count, merged)[windows].reshape(-1)
        hidden = self._layers.run(
            {"patches": self._sizes.patches(pixels, order)},
            positions=self._sizes.positions(pixels, order),
            segments=segments,
        )["hidden"]
        made = self._merger.run({"hidden": hidden.reshape(count, -1)})["rows"]
        result = np.empty_like(made)
        result[windows] = made
        return [ImageEmbedding(result, digest, self._sizes.token_grid(pixels))]


QWEN2VL = partial(Qwen2VLTower, windowed=False)
QWEN25VL = partial(Qwen2VLTower, windowed=True)
