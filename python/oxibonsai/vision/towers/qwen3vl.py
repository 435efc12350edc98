"""Qwen3-VL and Qwen3.5: images of any size, rows for the first layers of the language model, too.

Patches go in squares of ``merge * merge``, which follow each other and become one row at the end.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, merge_order, resample_places
from oxibonsai.vision.towers.qwen2vl import AnySize

# What the models' own processor has where the file does not say: pixels of an image.
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
        self._embedding = t.Pass(self._describe_embedding(w), w, device)
        # Cut after the layers that rows are made of, so that the results of one at a time are kept.
        ends = sorted({i + 1 for i in self._deep} | {c.num_hidden_layers})
        self._layers = [
            t.Pass(self._describe_layers(w, first, end), w, device)
            for first, end in pairwise([0, *ends])
        ]
        self._deep_mergers = [
            t.Pass(self._describe_deep_merger(w, i), w, device) for i in self._deep
        ]
        self._norm = t.Pass(self._describe_norm(w), w, device)
        self._merger = t.Pass(self._describe_merger(w), w, device)

    def _describe_embedding(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight", "v.patch_embd.weight.1")
        patches = g.input("patches", kernels.cols)
        bias = w.vector("v.patch_embd.bias", c.hidden_size)
        (h,) = g.linear(patches, kernels, bias=[bias], add=g.input("places", c.hidden_size))
        g.output("hidden", h)
        return g

    def _describe_layers(self, w: Weights, first: int, end: int) -> Builder:
        c, g = self._config, Builder()
        h = g.input("hidden", c.hidden_size)
        for i in range(first, end):
            h = t.layer(g, c, w, h, i, Builder.gelu_tanh, self._sizes.rope)
        g.output("hidden", h)
        return g

    def _describe_norm(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        g.output("hidden", t.layer_norm(g, c, w, g.input("hidden", c.hidden_size), "v.post_ln"))
        return g

    def _describe_merger(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        wide = c.hidden_size * self._sizes.merge**2
        x = t.linear(g, w, g.input("hidden", wide), "mm.0", wide)
        g.output("rows", t.linear(g, w, g.gelu(x), "mm.2", c.projection_dim))
        return g

    def _describe_deep_merger(self, w: Weights, layer: int) -> Builder:
        c, g = self._config, Builder()
        wide, b = c.hidden_size * self._sizes.merge**2, f"v.deepstack.{layer}"
        x = t.layer_norm(g, c, w, g.input("hidden", wide), f"{b}.norm")
        x = g.gelu(t.linear(g, w, x, f"{b}.fc1", wide))
        g.output("rows", t.linear(g, w, x, f"{b}.fc2", c.projection_dim))
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
        places = resample_places(self._places, rows, cols).reshape(rows * cols, -1)
        # What only the embedding reads is gone when the layers run.
        inputs = {"patches": self._sizes.patches(pixels, order), "places": places[order]}
        del places
        hidden = self._embedding.run(inputs)["hidden"]
        del inputs
        count = self.count_rows(pixels)
        positions = self._sizes.positions(pixels, order)
        deep: list[Floats] = []
        for i, layers in enumerate(self._layers):
            hidden = layers.run({"hidden": hidden}, positions=positions)["hidden"]
            if i < len(self._deep):
                merged = self._deep_mergers[i].run({"hidden": hidden.reshape(count, -1)})
                deep.append(merged["rows"])
        hidden = self._norm.run({"hidden": hidden})["hidden"]
        rows_of_all = self._merger.run({"hidden": hidden.reshape(count, -1)})["rows"]
        parts = [rows_of_all, *deep]
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
