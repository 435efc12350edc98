"""Gemma 3: SigLIP over one square tile; means of squares of patches become rows that see each other."""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_square, read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import patches_of, pool
from oxibonsai.vision.processors import Gemma3Processor

_BEFORE, _AFTER = "\n\n<start_of_image>", "<end_of_image>\n\n"
_POOLED = 4  # patches on each axis that become one row, where the file does not say


class Gemma3Tower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = written = "<start_of_image>"
    placeholder = "<image_soft_token>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        keys.flag("use_gelu", True)
        self._pooled = read_square(keys, "vision.projector.scale_factor", _POOLED, c.side)
        self.width = c.projection_dim
        self.processor = Gemma3Processor(
            c.image_size, image_mean=c.image_mean, image_std=c.image_std
        )
        self._places = w.floats("v.position_embd.weight", c.side**2, c.hidden_size)
        self._layers = t.Pass(t.siglip(c, w), w, device)
        self._projector = t.Pass(self._describe_projector(w), w, device)

    def _describe_projector(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        # The file has it with a row for each input.
        stored = w.floats("mm.input_projection.weight", c.hidden_size, c.projection_dim)
        norm = w.vector("mm.soft_emb_norm.weight", c.hidden_size)
        x = g.rms_norm(g.input("pooled", c.hidden_size), norm, c.layer_norm_eps)
        (x,) = g.linear(x, t.matrix_of("mm.input_projection.weight", stored.T))
        g.output("rows", x)
        return g

    def _check(self, pixels: PixelGrid) -> None:
        size = self._config.image_size
        tiles, _, height, width = pixels.pixels.shape
        if (tiles, height, width) != (1, size, size):
            raise RequestError(
                f"{tiles} tiles of {width} x {height} pixels; this tower reads one of {size} x {size}"
            )

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self._check(pixels)
        return (self._config.side // self._pooled) ** 2

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return [_BEFORE, self.count_rows(pixels), _AFTER]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self._check(pixels)
        c = self._config
        patches = patches_of(pixels.pixels[0], c.patch_size).reshape(c.side**2, -1)
        hidden = self._layers.run({"patches": patches, "places": self._places})["hidden"]
        pooled = pool(hidden, c.side, self._pooled)
        rows = self._projector.run({"pooled": np.ascontiguousarray(pooled)})["rows"]
        return [_BEFORE, ImageEmbedding(rows, digest, sees_itself=True), _AFTER]
