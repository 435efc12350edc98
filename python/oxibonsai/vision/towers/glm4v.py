"""GLM-4.1V, 4.5V and 4.6V: images of any size; a convolution joins the patches of a square to one row."""

from __future__ import annotations

from oxibonsai.devices import Device
from oxibonsai.graph import Builder
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision import transformer as t
from oxibonsai.vision.config import read_vision
from oxibonsai.vision.image import ImageEmbedding, PixelGrid
from oxibonsai.vision.patches import convolution_windows, merge_order, resample_places_bicubic
from oxibonsai.vision.processors import Glm4VProcessor
from oxibonsai.vision.towers.qwen2vl import AnySize

_PROJECTOR_EPS = 1e-5


class Glm4VTower:
    """See :class:`oxibonsai.vision.towers.family.Family`."""

    marker = placeholder = "<|image|>"
    written = "<|begin_of_image|><|image|><|end_of_image|>"

    def __init__(self, keys: Keys, w: Weights, device: Device) -> None:
        self._config = c = read_vision(keys)
        if not keys.flag("use_silu", False) or keys.flag("use_gelu", False):
            raise keys.unsupported("an activation other than SiLU is not supported for glm4v")
        usual = Glm4VProcessor()
        self._sizes = AnySize(keys, c, usual.min_pixels, usual.max_pixels, Glm4VProcessor)
        self.width = c.projection_dim
        self.processor = self._sizes.processor
        self._places = w.floats("v.position_embd.weight", c.side**2, c.hidden_size)
        self._layers = t.Pass(self._describe_layers(w), w, device)
        self._merger = t.Pass(self._describe_merger(w), w, device)

    def _describe_layers(self, w: Weights) -> Builder:
        c, g = self._config, Builder()
        kernels = t.patch_matrix(c, w, "v.patch_embd.weight", "v.patch_embd.weight.1")
        bias = w.vector("v.patch_embd.bias", c.hidden_size)
        (h,) = g.linear(g.input("patches", kernels.cols), kernels, bias=[bias])
        h = g.add(t.rms_norm(g, c, w, h, "v.norm_embd"), g.input("places", c.hidden_size))
        for i in range(c.num_hidden_layers):
            b = f"v.blk.{i}"
            x = t.rms_norm(g, c, w, h, f"{b}.ln1")
            a = t.attention(g, c, w, x, i, rope=self._sizes.rope)
            h = t.linear(g, w, a, f"{b}.attn_out", c.hidden_size, add=h)
            x = t.rms_norm(g, c, w, h, f"{b}.ln2")
            ff = w.rows(f"{b}.ffn_up")  # files have the merger's as feed_forward_length
            gate, up = (t.linear(g, w, x, f"{b}.ffn_{n}", ff) for n in ("gate", "up"))
            h = t.linear(g, w, g.swiglu(gate, up), f"{b}.ffn_down", c.hidden_size, add=h)
        g.output("hidden", t.rms_norm(g, c, w, h, "v.post_ln"))
        return g

    def _describe_merger(self, w: Weights) -> Builder:
        c, g, merge = self._config, Builder(), self._sizes.merge
        name, wide, ff = "mm.patch_merger", c.projection_dim, c.intermediate_size
        kernels = w.floats(f"{name}.weight", wide, c.hidden_size, merge, merge)
        square = g.input("squares", c.hidden_size * merge**2)
        matrix = t.matrix_of(f"{name}.weight", kernels.reshape(wide, -1))
        (x,) = g.linear(square, matrix, bias=[w.bias(name, wide)])
        x = t.linear(g, w, x, "mm.model.fc", wide)
        weight, bias = (w.vector(f"mm.post_norm.{n}", wide) for n in ("weight", "bias"))
        x = g.gelu(g.layer_norm(x, weight, bias, _PROJECTOR_EPS))
        gate, up = (t.linear(g, w, x, f"mm.{n}", ff) for n in ("gate", "up"))
        g.output("rows", t.linear(g, w, g.swiglu(gate, up), "mm.down", wide))
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
        places = resample_places_bicubic(self._places, rows, cols).reshape(rows * cols, -1)
        inputs = {"patches": self._sizes.patches(pixels, order), "places": places[order]}
        positions = self._sizes.positions(pixels, order)
        hidden = self._layers.run(inputs, positions=positions)["hidden"]
        squares = convolution_windows(hidden, self._sizes.merge)
        made = self._merger.run({"squares": squares})["rows"]
        return [ImageEmbedding(made, digest, self._sizes.token_grid(pixels))]
