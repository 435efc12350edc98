"""Qwen2-VL and Qwen2.5-VL: pictures of any size.

Qwen2.5-VL's layers attend within windows of the picture, but for every n-th; its patches go window
after window.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.graph import Builder, Value
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import merge_order, window_order
from oxibonsai.vision.towers.any_size import AnySize

# What the models' own processor has where the file does not say: pixels of a picture.
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
        self._period, self._window = 1, 0  # every layer sees the whole picture
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
            return g.rms_norm(x, w.vector(f"{name}.weight", x.cols), self._config.layer_norm_eps)
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
