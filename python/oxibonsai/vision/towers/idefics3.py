"""Idefics 3 and SmolVLM: SigLIP over square tiles; the patches of a square are joined to one row."""

from __future__ import annotations

from oxibonsai.devices import Device
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats
from oxibonsai.vision.processors import Idefics3Processor
from oxibonsai.vision.towers.family import filled
from oxibonsai.vision.towers.joined_tiles import JoinedTiles, embed_tiles

_AROUND = "<fake_token_around_image>"


class Idefics3Tower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = written = placeholder = "<image>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        keys.flag("use_gelu", True)
        self._tiles = JoinedTiles(keys, c, 2)
        self.width = c.projection_dim
        self.processor = Idefics3Processor(
            longest_edge=keys.integer("vision.preproc_image_size", c.image_size),
            image_size=c.image_size,
            image_mean=c.image_mean,
            image_std=c.image_std,
        )
        self._places = w.floats("v.position_embd.weight", c.side**2, c.hidden_size)
        self._layers = t.Pass(t.siglip(c, w), w, device)
        g, wide = Builder(), c.hidden_size * self._tiles.patches_per_row
        g.output("rows", t.linear(g, w, g.input("joined", wide), "mm.model.fc", c.projection_dim))
        self._projector = t.Pass(g, w, device)

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return self._tiles.count_rows(pixels)

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self.count_rows(pixels)
        count = self._tiles.rows_of_tile
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
        made = embed_tiles(pixels, digest, self._encode_tile)
        return filled(self.layout(pixels), made)

    def _encode_tile(self, tile: Floats) -> Floats:
        inputs = {"patches": self._tiles.patches(tile), "places": self._places}
        hidden = self._layers.run(inputs)["hidden"]
        return self._projector.run({"joined": self._tiles.join(hidden)})["rows"]
