"""InternVL: a vision transformer over square tiles; the patches of a square are joined to one row."""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.graph import Builder, Value
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats
from oxibonsai.vision.processors import InternVLProcessor
from oxibonsai.vision.towers.family import filled
from oxibonsai.vision.towers.joined_tiles import JoinedTiles, read_max_tiles

_PROJECTOR_EPS = 1e-5


class InternVLTower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = written = placeholder = "<IMG_CONTEXT>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        if not keys.flag("use_gelu", False) or keys.flag("use_silu", False):
            raise keys.unsupported("an activation other than GELU is not supported for internvl")
        self._tiles = JoinedTiles(keys, c)
        self.width = c.projection_dim
        self.processor = InternVLProcessor(
            image_size=c.image_size,
            min_tiles=keys.integer("vision.preproc_min_tiles", 1),
            max_tiles=read_max_tiles(keys, 12),
            image_mean=c.image_mean,
            image_std=c.image_std,
        )
        self._places = _places(w, c.side**2 + 1, c.hidden_size)
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._projector = t.Pass(self._describe_projector(w), w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight")
        patches = g.input("patches", kernels.cols)
        (h,) = g.linear(patches, kernels, add=g.input("places", c.hidden_size))
        for i in range(c.num_hidden_layers):
            b = f"v.blk.{i}"
            a = t.attention(g, c, w, self._norm(g, w, h, f"{b}.ln1"), i)
            a = t.linear(g, w, a, f"{b}.attn_out", c.hidden_size)
            h = g.add(h, self._scaled(g, w, a, f"{b}.ls1"))
            x = self._norm(g, w, h, f"{b}.ln2")
            x = g.gelu(t.linear(g, w, x, f"{b}.ffn_up", c.intermediate_size))
            x = t.linear(g, w, x, f"{b}.ffn_down", c.hidden_size)
            h = g.add(h, self._scaled(g, w, x, f"{b}.ls2"))
        g.output("hidden", h)
        return g

    def _norm(self, g: Builder, w: Weights, x: Value, name: str) -> Value:
        """Return a LayerNorm; an RMSNorm in the tower of 6 billion parameters, whose norms have no bias."""
        if w.has(f"{name}.bias"):
            return t.layer_norm(g, self._config, w, x, name)
        return t.rms_norm(g, self._config, w, x, name)

    def _scaled(self, g: Builder, w: Weights, x: Value, name: str) -> Value:
        return g.scale_columns(x, w.vector(f"{name}.weight", x.cols))

    def _describe_projector(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        x = g.input("joined", c.hidden_size * self._tiles.patches_per_row)
        weight, bias = (w.vector(f"mm.model.mlp.0.{n}", x.cols) for n in ("weight", "bias"))
        x = g.layer_norm(x, weight, bias, _PROJECTOR_EPS)
        x = g.gelu(t.linear(g, w, x, "mm.model.mlp.1", c.projection_dim))
        g.output("rows", t.linear(g, w, x, "mm.model.mlp.3", c.projection_dim))
        return g

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return self._tiles.count_rows(pixels)

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return ["<img>", self.count_rows(pixels), "</img>"]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self.count_rows(pixels)
        rows = np.concatenate([self._encode_tile(tile) for tile in pixels.pixels])
        return filled(self.layout(pixels), [ImageEmbedding(rows, digest)])

    def _encode_tile(self, tile: Floats) -> Floats:
        cut = self._tiles.patches(tile)
        # The class has a place of its own, and no patch.
        patches = np.concatenate([np.zeros((1, cut.shape[1]), np.float32), cut])
        hidden = self._layers.run({"patches": patches, "places": self._places})["hidden"][1:]
        return self._projector.run({"joined": self._tiles.join(hidden)})["rows"]


def _places(w: Weights, count: int, width: int) -> Floats:
    """Return the addition to each patch: embeddings of places, the convolution's bias, the class first."""
    name = "v.position_embd.weight"
    shape = w.shape(name) if w.has(name) else (count, width)
    places = w.floats(name, *((1, count, width) if len(shape) == 3 else (count, width)))
    places = places.reshape(count, width).copy()
    places[1:] += w.vector("v.patch_embd.bias", width)
    places[0] += t.class_row(w, width)
    return places
