"""Qwen3-VL and Qwen3.5: pictures of any size, rows for the first layers of the language model, too.

Patches go in squares of ``merge * merge``, which follow each other and become one row at the end.
"""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.errors import RequestError
from oxibonsai.graph import AxialRope, Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, merge_order, patches_of, resample_places
from oxibonsai.vision.processors import Qwen2VLProcessor

# What the models' own processor has where the file does not say: pixels of a picture.
_MIN_PIXELS, _MAX_PIXELS = 256 * 256, 4096 * 4096
_THETA = 10000.0
_FRAMES = 2  # that one patch covers; of a picture both are the same


class Qwen3VLTower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = placeholder = "<|image_pad|>"
    written = "<|vision_start|><|image_pad|><|vision_end|>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        self._merge = keys.integer("vision.spatial_merge_size", 2)
        keys.flag("use_gelu", True)
        deep = _deepstack_layers(keys, c.num_hidden_layers)
        self._deep = [i for i, chosen in enumerate(deep) if chosen]
        self.width = c.projection_dim * (1 + len(self._deep))
        self.processor = Qwen2VLProcessor(
            patch_size=c.patch_size,
            merge_size=self._merge,
            min_pixels=keys.integer("vision.image_min_pixels", _MIN_PIXELS),
            max_pixels=keys.integer("vision.image_max_pixels", _MAX_PIXELS),
            image_mean=c.image_mean,
            image_std=c.image_std,
        )
        self._places = w.floats("v.position_embd.weight", c.side**2, c.hidden_size)
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._mergers = t.Pass(self._describe_mergers(w), w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight", "v.patch_embd.weight.1")
        patches = g.input("patches", kernels.cols)
        bias = w.vector("v.patch_embd.bias", c.hidden_size)
        (h,) = g.linear(patches, kernels, bias=[bias], add=g.input("places", c.hidden_size))
        rope = AxialRope((c.head_dim // 2, c.head_dim // 2), _THETA)
        for i in range(c.num_hidden_layers):
            h = t.layer(g, c, w, h, i, Builder.gelu_tanh, rope)
            if i in self._deep:
                g.output(f"layer.{i}", h)
        g.output("hidden", t.layer_norm(g, c, w, h, "v.post_ln"))
        return g

    def _describe_mergers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        wide = c.hidden_size * self._merge**2
        x = t.linear(g, w, g.input("hidden", wide), "mm.0", wide)
        g.output("rows", t.linear(g, w, g.gelu(x), "mm.2", c.projection_dim))
        for i in self._deep:
            b = f"v.deepstack.{i}"
            x = t.layer_norm(g, c, w, g.input(f"layer.{i}", wide), f"{b}.norm")
            x = g.gelu(t.linear(g, w, x, f"{b}.fc1", wide))
            g.output(f"rows.{i}", t.linear(g, w, x, f"{b}.fc2", c.projection_dim))
        return g

    def _grid(self, pixels: PixelGrid) -> tuple[int, int]:
        """Rows and columns of patches."""
        tiles, _, height, width = pixels.pixels.shape
        whole = self._config.patch_size * self._merge
        if tiles != 1 or height % whole != 0 or width % whole != 0:
            raise RequestError(
                f"{tiles} tiles of {width} x {height} pixels; this tower reads one whose sides are "
                f"multiples of {whole}"
            )
        return height // self._config.patch_size, width // self._config.patch_size

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = self._grid(pixels)
        return rows * cols // self._merge**2

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return [self.count_rows(pixels)]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        rows, cols = self._grid(pixels)
        order = merge_order(rows, cols, self._merge)
        patches = patches_of(pixels.pixels[0], self._config.patch_size).reshape(rows * cols, -1)
        places = resample_places(self._places, rows, cols).reshape(rows * cols, -1)
        at = np.indices((rows, cols), dtype=np.int32).reshape(2, -1).T
        hidden = self._layers.run(
            {"patches": np.tile(patches[order], (1, _FRAMES)), "places": places[order]},
            positions=np.ascontiguousarray(at[order]),
        )
        count = rows * cols // self._merge**2
        merged = self._mergers.run({name: x.reshape(count, -1) for name, x in hidden.items()})
        parts: list[Floats] = [merged["rows"], *(merged[f"rows.{i}"] for i in self._deep)]
        grid = 1, rows // self._merge, cols // self._merge
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
