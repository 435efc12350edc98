"""Llama 4: a vision transformer over square tiles; the patches of a square are joined to one row.

Tiles are separated by marks in the text, and an overview of the whole image follows them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.devices import Device
from oxibonsai.graph import AxialRope, Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats
from oxibonsai.vision.processors import Llama4Processor
from oxibonsai.vision.towers.family import filled
from oxibonsai.vision.towers.joined_tiles import JoinedTiles, embed_tiles, read_max_tiles

_THETA = 10000.0


class Llama4Tower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = written = "<|image|>"
    placeholder = "<|patch|>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        if not keys.flag("use_gelu", False) or keys.flag("use_silu", False):
            raise keys.unsupported("an activation other than GELU is not supported for llama4")
        self._tiles = JoinedTiles(keys, c)
        self.width = c.projection_dim
        self.processor = Llama4Processor(
            image_size=c.image_size,
            max_tiles=read_max_tiles(keys, 16),
            image_mean=c.image_mean,
            image_std=c.image_std,
        )
        places = w.floats("v.position_embd.weight", c.side**2 + 1, c.hidden_size).copy()
        places[-1] += t.class_row(w, c.hidden_size)
        self._places = places
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._projector = t.Pass(self._describe_projector(w), w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        half = c.head_dim // 2
        rope = AxialRope((half, half), _THETA, interleaved=True)  # columns, then rows
        kernels = w.matrix("v.patch_embd", c.hidden_size, 3 * c.patch_size**2)
        patches = g.input("patches", 3 * c.patch_size**2)
        (h,) = g.linear(patches, kernels, add=g.input("places", c.hidden_size))
        h = t.layer_norm(g, c, w, h, "v.pre_ln")
        for i in range(c.num_hidden_layers):
            h = t.layer(g, c, w, h, i, Builder.gelu, rope)
        g.output("hidden", t.layer_norm(g, c, w, h, "v.post_ln"))
        return g

    def _describe_projector(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        x, wide = (
            g.input("joined", c.hidden_size * self._tiles.patches_per_row),
            w.rows("mm.model.mlp.1"),
        )
        x = g.gelu(t.linear(g, w, x, "mm.model.mlp.1", wide))
        x = g.gelu(t.linear(g, w, x, "mm.model.mlp.2", wide))
        g.output("rows", t.linear(g, w, x, "mm.model.fc", c.projection_dim))
        return g

    def _positions(self) -> npt.NDArray[np.int32]:
        """Column and row of each patch, counted from 1, and those of the class, which turns nothing."""
        side = self._config.side
        rows, cols = np.indices((side, side), dtype=np.int32).reshape(2, -1) + 1
        return np.concatenate([np.stack([cols, rows], axis=1), np.zeros((1, 2), np.int32)])

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return self._tiles.count_rows(pixels)

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        count = self.count_rows(pixels) // len(pixels.pixels)
        parts: list[str | int] = ["<|image_start|>"]
        if len(pixels.pixels) > 1:
            rows, cols = pixels.tiles
            line: list[str | int] = [count, "<|tile_x_separator|>"] * cols
            parts += [*line[:-1], "<|tile_y_separator|>"] * rows
        return [*parts, "<|image|>", count, "<|image_end|>"]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self.count_rows(pixels)
        made = embed_tiles(pixels, digest, self._encode_tile)
        return filled(self.layout(pixels), made)

    def _encode_tile(self, tile: Floats) -> Floats:
        cut = self._tiles.patches(tile)
        # The class has a place of its own, and no patch.
        patches = np.concatenate([cut, np.zeros((1, cut.shape[1]), np.float32)])
        inputs = {"patches": patches, "places": self._places}
        hidden = self._layers.run(inputs, positions=self._positions())["hidden"][:-1]
        return self._projector.run({"joined": self._tiles.join(hidden)})["rows"]
