"""Qwen3-VL and Qwen3.5: pictures of any size, rows for the first layers of the language model, too.

Patches go in squares of ``merge * merge``, which follow each other and become one row at the end.
"""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, merge_order, resample_places
from oxibonsai.vision.towers.any_size import AnySize

# What the models' own processor has where the file does not say: pixels of a picture.
_MIN_PIXELS, _MAX_PIXELS = 256 * 256, 4096 * 4096


class Qwen3VLTower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = placeholder = "<|image_pad|>"
    written = "<|vision_start|><|image_pad|><|vision_end|>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        self._sizes = AnySize(keys, c, _MIN_PIXELS, _MAX_PIXELS)
        keys.flag("use_gelu", True)
        deep = _deepstack_layers(keys, c.num_hidden_layers)
        self._deep = [i for i, chosen in enumerate(deep) if chosen]
        self.width = c.projection_dim * (1 + len(self._deep))
        self.processor = self._sizes.processor
        self._places = w.floats("v.position_embd.weight", c.side**2, c.hidden_size)
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._mergers = t.Pass(self._describe_mergers(w), w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight", "v.patch_embd.weight.1")
        patches = g.input("patches", kernels.cols)
        bias = w.vector("v.patch_embd.bias", c.hidden_size)
        (h,) = g.linear(patches, kernels, bias=[bias], add=g.input("places", c.hidden_size))
        for i in range(c.num_hidden_layers):
            h = t.layer(g, c, w, h, i, Builder.gelu_tanh, self._sizes.rope)
            if i in self._deep:
                g.output(f"layer.{i}", h)
        g.output("hidden", t.layer_norm(g, c, w, h, "v.post_ln"))
        return g

    def _describe_mergers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        wide = c.hidden_size * self._sizes.merge**2
        x = t.linear(g, w, g.input("hidden", wide), "mm.0", wide)
        g.output("rows", t.linear(g, w, g.gelu(x), "mm.2", c.projection_dim))
        for i in self._deep:
            b = f"v.deepstack.{i}"
            x = t.layer_norm(g, c, w, g.input(f"layer.{i}", wide), f"{b}.norm")
            x = g.gelu(t.linear(g, w, x, f"{b}.fc1", wide))
            g.output(f"rows.{i}", t.linear(g, w, x, f"{b}.fc2", c.projection_dim))
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
        places = resample_places(self._places, rows, cols).reshape(rows * cols, -1)[order]
        hidden = self._layers.run(
            {"patches": self._sizes.patches(pixels, order), "places": places},
            positions=self._sizes.positions(pixels, order),
        )
        del places  # some megabytes, which the mergers need no more
        count = self.count_rows(pixels)
        merged = self._mergers.run({name: x.reshape(count, -1) for name, x in hidden.items()})
        parts: list[Floats] = [merged["rows"], *(merged[f"rows.{i}"] for i in self._deep)]
        grid = self._sizes.token_grid(pixels)
        return [ImageEmbedding(np.concatenate(parts, axis=1), digest, grid)]


def _deepstack_layers(keys: Keys, layers: int) -> list[bool]:
    """``vision.is_deepstack_layers``: whether rows are made of a layer's result, for each."""
    key = "vision.is_deepstack_layers"
    found = keys.get(key, [False] * layers)
    listed = found.tolist() if isinstance(found, np.ndarray) else found
    if not isinstance(listed, list) or len(listed) != layers:
        raise keys.fail(f"clip.{key} does not say of {layers} layers what they are")
    if not all(isinstance(chosen, bool) for chosen in listed):
        raise keys.fail(f"clip.{key} holds what is neither true nor false")
    return listed
