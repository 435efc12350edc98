"""LLaVA 1.5 and 1.6: CLIP over square tiles.

1.6 has an overview of the image and tiles of it: the rows of the tiles lie as the image does, without
those that only padding went into, and each line of them ends with a learned row.
"""

from __future__ import annotations

import numpy as np

from oxibonsai.devices import Device
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import Floats, patches_of
from oxibonsai.vision.processors import ImageProcessor, LlavaNextProcessor, LlavaProcessor

_NEWLINE = "v.image_newline"


class LlavaTower:
    """See :class:`oxibonsai.vision.towers.family.Family`.

    All layers that the file has are run: its writer leaves out those behind the one whose result
    LLaVA reads.
    """

    marker = written = placeholder = "<image>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        _check_keys(keys, c.num_hidden_layers)
        self._gelu = keys.flag("use_gelu", False)
        self.width = w.shape("mm.0.weight")[0]
        self._newline = w.vector(_NEWLINE, self.width) if w.has(_NEWLINE) else None
        self.processor: ImageProcessor
        if self._newline is None:
            self.processor = LlavaProcessor(
                c.image_size, image_mean=c.image_mean, image_std=c.image_std
            )
        else:
            self.processor = LlavaNextProcessor(
                c.image_size, _pinpoints(keys, c.image_size), c.image_mean, c.image_std
            )
        places = w.floats("v.position_embd.weight", c.side**2 + 1, c.hidden_size).copy()
        places[0] += t.class_row(w, c.hidden_size)
        self._places = places
        self._layers = t.Pass(self._describe_layers(w), w, device)
        g = Builder()
        x = g.gelu(t.linear(g, w, g.input("hidden", c.hidden_size), "mm.0", self.width))
        g.output("rows", t.linear(g, w, x, "mm.2", self.width))
        self._projector = t.Pass(g, w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight")
        patches = g.input("patches", kernels.cols)
        (h,) = g.linear(patches, kernels, add=g.input("places", c.hidden_size))
        h = t.layer_norm(g, c, w, h, "v.pre_ln")
        for i in range(c.num_hidden_layers):
            h = t.layer(g, c, w, h, i, Builder.gelu if self._gelu else t.quick_gelu)
        g.output("hidden", h)
        return g

    def count_rows(self, pixels: PixelGrid) -> int:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        c = self._config
        tiles, _, height, width = pixels.pixels.shape
        rows, cols = pixels.tiles
        wanted = 1 if self._newline is None else rows * cols + 1
        if (height, width) != (c.image_size, c.image_size) or tiles != wanted:
            raise RequestError(
                f"{tiles} tiles of {width} x {height} pixels; this tower reads {wanted} of "
                f"{c.image_size} x {c.image_size}"
            )
        count = c.side * c.side
        if self._newline is None:
            return count
        top, bottom, left, right = self._shown(pixels)
        return count + (bottom - top) * (right - left + 1)

    def _shown(self, pixels: PixelGrid) -> tuple[int, int, int, int]:
        """Top, bottom, left and right of the patches of all tiles that show the image."""
        rows, cols = (n * self._config.side for n in pixels.tiles)
        height, width = pixels.original_size
        if min(height, width) < 1:
            raise RequestError("this tower needs the picture's size before it was resized")
        if width / height > cols / rows:
            padding = (rows - int(round(height * (cols / width), 7))) // 2
            return padding, rows - padding, 0, cols
        padding = (cols - int(round(width * (rows / height), 7))) // 2
        return 0, rows, padding, cols - padding

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        return [self.count_rows(pixels)]

    def encode(self, pixels: PixelGrid, digest: bytes) -> list[str | ImageEmbedding]:
        """See :class:`oxibonsai.vision.towers.family.Family`."""
        self.count_rows(pixels)
        overview, *tiles = (self._encode_tile(tile) for tile in pixels.pixels)
        if self._newline is None:
            return [ImageEmbedding(overview, digest)]
        side, (rows, cols) = self._config.side, pixels.tiles
        grid = np.stack(tiles).reshape(rows, cols, side, side, -1).transpose(0, 2, 1, 3, 4)
        top, bottom, left, right = self._shown(pixels)
        whole = grid.reshape(rows * side, cols * side, -1)[top:bottom, left:right]
        ends = np.broadcast_to(self._newline, (len(whole), 1, self.width))
        lines = np.concatenate([whole, ends], axis=1).reshape(-1, self.width)
        return [ImageEmbedding(np.concatenate([overview, lines]), digest)]

    def _encode_tile(self, tile: Floats) -> Floats:
        c = self._config
        cut = patches_of(tile, c.patch_size).reshape(c.side**2, -1)
        # The class has a place of its own, and no patch.
        patches = np.concatenate([np.zeros((1, cut.shape[1]), np.float32), cut])
        hidden = self._layers.run({"patches": patches, "places": self._places})["hidden"][1:]
        return self._projector.run({"hidden": np.ascontiguousarray(hidden)})["rows"]


def _check_keys(keys: Keys, layers: int) -> None:
    """Keys that say what every file of the family does."""
    if keys.flag("has_text_encoder", False) or not keys.flag("has_llava_projector", True):
        raise keys.unsupported("the file is a whole CLIP, no tower of LLaVA")
    feature = keys.get("vision.feature_layer", [layers])
    listed = feature.tolist() if isinstance(feature, np.ndarray) else feature
    if listed != [layers]:
        raise keys.unsupported(
            f"clip.vision.feature_layer is {listed!r}; the result of the last of {layers} layers alone "
            "is supported"
        )
    merge = keys.get("vision.mm_patch_merge_type", "flat")
    wanted = "spatial_unpad" if keys.checkpoint.has(_NEWLINE) else "flat"
    if not isinstance(merge, str) or merge != wanted:
        raise keys.unsupported(
            f"clip.vision.mm_patch_merge_type is {merge!r}, which is not supported"
        )


def _pinpoints(keys: Keys, size: int) -> tuple[tuple[int, int], ...]:
    """``vision.image_grid_pinpoints``: width and height of each, in pixels, as height and width."""
    key = "vision.image_grid_pinpoints"
    found = keys.get(key)
    values = found.tolist() if isinstance(found, np.ndarray) else found
    whole = isinstance(values, list) and all(type(v) is int and v > 0 for v in values)
    if not whole or len(values) % 2 != 0 or not values or any(v % size != 0 for v in values):
        raise keys.fail(f"clip.{key} is {values!r}, no sizes in tiles of {size} pixels")
    return tuple(zip(values[1::2], values[::2], strict=True))
