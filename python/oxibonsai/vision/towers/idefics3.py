"""Idefics 3 and SmolVLM: SigLIP over square tiles; the patches of a square are joined to one row."""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_square, read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, merge_order, patches_of
from oxibonsai.vision.processors import Idefics3Processor
from oxibonsai.vision.towers.family import count_tiles, filled

_AROUND = "<fake_token_around_image>"


class Idefics3Tower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = written = placeholder = "<image>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        keys.flag("use_gelu", True)
        self._joined = read_square(keys, "vision.projector.scale_factor", 2, c.side)
        self.width = c.projection_dim
        self.processor = Idefics3Processor(
            longest_edge=keys.integer("vision.preproc_image_size", c.image_size),
            image_size=c.image_size,
            image_mean=c.image_mean,
            image_std=c.image_std,
        )
        self._places = w.floats("v.position_embd.weight", c.side**2, c.hidden_size)
        self._layers = t.Pass(t.siglip(c, w), w, device)
        g, wide = Builder(), c.hidden_size * self._joined**2
        g.output("rows", t.linear(g, w, g.input("joined", wide), "mm.model.fc", c.projection_dim))
        self._projector = t.Pass(g, w, device)

    @property
    def _rows_of_tile(self) -> int:
        side = self._config.side // self._joined
        return side * side

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return count_tiles(pixels, self._config.image_size) * self._rows_of_tile

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self.count_rows(pixels)
        count = self._rows_of_tile
        whole: list[str | int] = [f"{_AROUND}<global-img>", count, _AROUND]
        if len(pixels.pixels) == 1:
            return whole
        parts: list[str | int] = []
        rows, cols = pixels.tiles
        for y in range(rows):
            for x in range(cols):
                parts += [f"{_AROUND}<row_{y + 1}_col_{x + 1}>", count]
            parts.append("\n")
        return [*parts, f"\n{_AROUND}<global-img>", *whole[1:]]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self.count_rows(pixels)
        made = (
            ImageEmbedding(self._encode_tile(tile), digest + i.to_bytes(4, "little"))
            for i, tile in enumerate(pixels.pixels)
        )
        return filled(self.layout(pixels), made)

    def _encode_tile(self, tile: Floats) -> Floats:
        c = self._config
        patches = patches_of(tile, c.patch_size).reshape(c.side**2, -1)
        hidden = self._layers.run({"patches": patches, "places": self._places})["hidden"]
        order = merge_order(c.side, c.side, self._joined)
        joined = np.ascontiguousarray(hidden[order]).reshape(self._rows_of_tile, -1)
        return self._projector.run({"joined": joined})["rows"]
