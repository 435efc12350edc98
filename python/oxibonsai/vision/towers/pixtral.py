"""Pixtral and Mistral Small 3: images of any size, in rows that ``[IMG_BREAK]`` divides.

The patches of a square are joined to one, where the model has a merger.
"""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.errors import RequestError
from oxibonsai.graph import AxialRope, Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_square, read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import convolution_windows, merge_order, patches_of
from oxibonsai.vision.processors import PixtralProcessor
from oxibonsai.vision.towers.family import filled

_THETA = 10000.0


class PixtralTower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = written = placeholder = "[IMG]"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        self._silu = keys.flag("use_silu", False)
        if keys.flag("use_gelu", False) == self._silu:
            raise keys.fail("one of clip.use_gelu and clip.use_silu must be true")
        half = c.head_dim // 2
        theta = keys.theta("rope.freq_base", _THETA)
        self._rope = AxialRope((half, half), theta, interleaved=True, shared=True)
        self._merge = read_square(keys, "vision.spatial_merge_size", 1)
        self.width = c.projection_dim
        self.processor = PixtralProcessor(
            longest_edge=c.image_size,
            patch_size=c.patch_size * self._merge,
            image_mean=c.image_mean,
            image_std=c.image_std,
        )
        # The language model has it, too.
        w.leave_out("v.token_embd.img_break")
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._projector = t.Pass(self._describe_projector(w), w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight")
        (h,) = g.linear(g.input("patches", kernels.cols), kernels)
        h = t.rms_norm(g, c, w, h, "v.pre_ln")
        for i in range(c.num_hidden_layers):
            b = f"v.blk.{i}"
            a = t.attention(g, c, w, t.rms_norm(g, c, w, h, f"{b}.ln1"), i, rope=self._rope)
            h = t.linear(g, w, a, f"{b}.attn_out", c.hidden_size, add=h)
            x = t.rms_norm(g, c, w, h, f"{b}.ln2")
            gate = t.linear(g, w, x, f"{b}.ffn_gate", c.intermediate_size)
            up = t.linear(g, w, x, f"{b}.ffn_up", c.intermediate_size)
            x = g.swiglu(gate, up) if self._silu else g.multiply(g.gelu(gate), up)
            h = t.linear(g, w, x, f"{b}.ffn_down", c.hidden_size, add=h)
        g.output("hidden", t.rms_norm(g, c, w, h, "mm.input_norm") if self._merge > 1 else h)
        return g

    def _describe_projector(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        x = g.input("merged", c.hidden_size * self._merge**2)
        if self._merge > 1:
            x = t.linear(g, w, x, "mm.patch_merger", c.hidden_size)
        x = g.gelu(t.linear(g, w, x, "mm.1", c.projection_dim))
        g.output("rows", t.linear(g, w, x, "mm.2", c.projection_dim))
        return g

    def _grid(self, pixels: PixelGrid) -> tuple[int, int]:
        """Return rows and columns of patches."""
        tiles, _, height, width = pixels.pixels.shape
        size = self._config.patch_size
        whole = size * self._merge
        if tiles != 1 or height % whole != 0 or width % whole != 0:
            raise RequestError(
                f"{tiles} tiles of {width} x {height} pixels; this tower reads one whose sides are "
                f"multiples of {whole}"
            )
        return height // size, width // size

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = self._grid(pixels)
        return rows * cols // self._merge**2

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = (n // self._merge for n in self._grid(pixels))
        line: list[str | int] = [cols, "[IMG_BREAK]"]
        return [*line * (rows - 1), cols, "[IMG_END]"]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = self._grid(pixels)
        patches = patches_of(pixels.pixels[0], self._config.patch_size).reshape(rows * cols, -1)
        at = np.indices((rows, cols), dtype=np.int32).reshape(2, -1).T
        hidden = self._layers.run({"patches": patches}, positions=np.ascontiguousarray(at))
        order = merge_order(rows, cols, self._merge)
        merged = convolution_windows(hidden["hidden"][order], self._merge)
        made = self._projector.run({"merged": merged})["rows"]
        lines = np.split(made, rows // self._merge)
        return filled(
            self.layout(pixels),
            (
                ImageEmbedding(np.ascontiguousarray(line), digest + i.to_bytes(4, "little"))
                for i, line in enumerate(lines)
            ),
        )
