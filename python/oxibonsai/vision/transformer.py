"""Graphs that the transformers of all towers share, described as those of language models are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import Device
from oxibonsai.errors import FormatError
from oxibonsai.graph import Builder, Rotation, Value
from oxibonsai.models.packing import pack
from oxibonsai.models.weights import Weights
from oxibonsai.vision.config import VisionConfig

Floats = npt.NDArray[np.float32]
Activation = Callable[[Builder, Value], Value]


def matrix_of(name: str, values: Floats) -> _core.Weight:
    """Return a matrix that is made of a file's tensors, float32 [rows, cols]."""
    rows = np.ascontiguousarray(values, dtype=np.float32)
    return _core.Weight.from_blocks(name, "F32", rows.view(np.uint8), rows.shape[1])


def patch_matrix(c: VisionConfig, w: Weights, *names: str) -> _core.Weight:
    """Return the convolution over patches as a matrix; kernels of several frames lie side by side."""
    shape = c.hidden_size, 3, c.patch_size, c.patch_size
    kernels = [w.floats(name, *shape).reshape(c.hidden_size, -1) for name in names]
    return matrix_of(names[0], np.concatenate(kernels, axis=1))


def class_row(w: Weights, width: int) -> Floats:
    """Return the embedding of the class, a vector: float32 [width]."""
    shape = w.shape("v.class_embd")
    if int(np.prod(shape)) != width:
        raise FormatError(
            f"{w.checkpoint.path}: tensor v.class_embd has shape {shape}, but the model's dimensions "
            f"need {width} values"
        )
    return w.floats("v.class_embd", *shape).reshape(-1)


def layer_norm(g: Builder, c: VisionConfig, w: Weights, x: Value, name: str) -> Value:
    """Return a LayerNorm of the tower."""
    weight = w.vector(f"{name}.weight", x.cols)
    return g.layer_norm(x, weight, w.bias(name, x.cols), c.layer_norm_eps)


def rms_norm(g: Builder, c: VisionConfig, w: Weights, x: Value, name: str) -> Value:
    """Return an RMSNorm of the tower."""
    return g.rms_norm(x, w.vector(f"{name}.weight", x.cols), c.layer_norm_eps)


def linear(
    g: Builder, w: Weights, x: Value, name: str, rows: int, add: Value | None = None
) -> Value:
    """Return a linear layer, with a bias where the file has it."""
    (y,) = g.linear(x, w.matrix(name, rows, x.cols), bias=[w.bias(name, rows)], add=add)
    return y


def attention(
    g: Builder,
    c: VisionConfig,
    w: Weights,
    x: Value,
    layer: int,
    *,
    rope: Rotation | None = None,
    segments: str = "",
) -> Value:
    """Return the layer's normed input through its attention, up to the output matrix.

    Args:
        g: Builder.
        c: Of the tower.
        w: Its tensors.
        x: [patches, hidden].
        layer: Number of the layer.
        rope: Rotation of queries and keys; None: there is none.
        segments: What sees each other; see :meth:`Builder.attend_local`.
    """
    b, hidden = f"v.blk.{layer}", c.hidden_size
    if w.has(f"{b}.attn_qkv.weight"):
        matrices = w.split(f"{b}.attn_qkv", [hidden] * 3, hidden)
        biases = w.split_bias(f"{b}.attn_qkv", [hidden] * 3)
    else:
        matrices = [w.matrix(f"{b}.attn_{n}", hidden, hidden) for n in "qkv"]
        biases = [w.bias(f"{b}.attn_{n}", hidden) for n in "qkv"]
    q, k, v = g.linear(x, *matrices, bias=biases)
    if w.has(f"{b}.attn_q_norm.weight"):  # of InternVL's largest tower, over all heads together
        q, k = (rms_norm(g, c, w, y, f"{b}.attn_{n}_norm") for y, n in ((q, "q"), (k, "k")))
    if rope is not None:
        q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
    return g.attend_local(q, k, v, head_dim=c.head_dim, scale=c.head_dim**-0.5, segments=segments)


def layer(
    g: Builder,
    c: VisionConfig,
    w: Weights,
    h: Value,
    number: int,
    activation: Activation,
    rope: Rotation | None = None,
) -> Value:
    """Return a layer with LayerNorms before attention and before an MLP without a gate."""
    b = f"v.blk.{number}"
    x = layer_norm(g, c, w, h, f"{b}.ln1")
    a = attention(g, c, w, x, number, rope=rope)
    h = linear(g, w, a, f"{b}.attn_out", c.hidden_size, add=h)
    x = layer_norm(g, c, w, h, f"{b}.ln2")
    up, down = f"{b}.ffn_up", f"{b}.ffn_down"
    if w.has(f"{down}.weight") and w.shape(f"{down}.weight") == (c.intermediate_size, x.cols):
        up, down = down, up  # as the first files for LLaVA have them
    x = activation(g, linear(g, w, x, up, c.intermediate_size))
    return linear(g, w, x, down, c.hidden_size, add=h)


def quick_gelu(g: Builder, x: Value) -> Value:
    """Return x * sigmoid(1.702 x)."""
    return g.sigmoid_gate(g.scale(x, 1.702), x)


def siglip(c: VisionConfig, w: Weights) -> Builder:
    """SigLIP over a tile: ``patches`` and the learned embeddings of their ``places`` to ``hidden``."""
    g = Builder()
    kernels = patch_matrix(c, w, "v.patch_embd.weight")
    patches = g.input("patches", kernels.cols)
    bias = w.vector("v.patch_embd.bias", c.hidden_size)
    (h,) = g.linear(patches, kernels, bias=[bias], add=g.input("places", c.hidden_size))
    for i in range(c.num_hidden_layers):
        h = layer(g, c, w, h, i, Builder.gelu_tanh)
    g.output("hidden", layer_norm(g, c, w, h, "v.post_ln"))
    return g


class Pass:
    """A graph of a tower that a device has compiled.

    Args:
        builder: With the graph.
        w: The tower's tensors.
        device: Runs it.
    """

    def __init__(self, builder: Builder, w: Weights, device: Device) -> None:
        self._packed = pack(builder.graph.matrices, w.checkpoint, device)
        self._executable = device.compile(builder.graph)

    def run(
        self,
        inputs: Mapping[str, Floats],
        *,
        sequences: Items[int] = (),
        positions: npt.NDArray[np.int32] | None = None,
        segments: Mapping[str, Items[int]] | None = None,
    ) -> dict[str, Floats]:
        """Run it over rows.

        Args:
            inputs: float32 [rows, columns] each.
            sequences: How many rows see each other, of one tile after the other; none: all rows.
            positions: int32 [rows, axes] for rope.
            segments: Rows that see each other in some layers, by name.

        Returns:
            The outputs by name.
        """
        batch = _core.Batch()
        for count in sequences or [len(next(iter(inputs.values())))]:
            batch.add_span(count)
        for name, values in inputs.items():
            batch.set_input(name, values)
        if positions is not None:
            batch.set_positions(positions)
        for name, counts in (segments or {}).items():
            batch.set_segments(name, counts)
        return self._executable.run(batch)
