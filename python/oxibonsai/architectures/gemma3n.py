"""Gemma 3n: several streams of hidden states, of which one goes through a layer (AltUp).

It also has low-rank residuals (LAuReL), and, as Gemma 4 does, shared keys and values and embeddings for
each layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from statistics import NormalDist
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, gemma
from oxibonsai.architectures.decoder import HeadDim
from oxibonsai.architectures.gemma_two_kinds import (
    OfLayers,
    SizesByKind,
    TwoKinds,
    attention,
    layer_input,
    layer_inputs,
    layer_tensors,
    layers_with_window,
    outside,
    wrapper,
)
from oxibonsai.architectures.layer_sizes import KEYS, Largest, Sizes
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import read_rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    COUNT_OR_ZERO,
    Checked,
    Derived,
    GgufKeys,
    Known,
    Stated,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.operations import Stack
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, vector
from oxibonsai.architectures.windows import FULL, LOCAL
from oxibonsai.graph import Builder, RopeConfig, Value

FLOOR = 1e-5  # of the mean square of a stream
PERIOD = 5  # the last layer of each sees all, where a file does not say
SPARSITY, SPARSITY_KEY = "activation_sparsity_pattern", "activation_sparsity_scale"
STACKS = {"altup_projections": "altup_proj", "altup_unembed_projections": "altup_unembd_proj"}
# What weighs the streams stays float32.
SMALL = {
    "altup.correct_output_scale": "altup_correct_scale.weight",
    "altup.correction_coefs.weight": "altup_correct_coef.weight",
    "altup.prediction_coefs.weight": "altup_predict_coef.weight",
    "altup.modality_router.weight": "altup_router.weight",
    "altup.router_norm.weight": "altup_router_norm.weight",
    "laurel.post_laurel_norm.weight": "laurel_post_norm.weight",
}
LAUREL = {"laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r"}

# The streams of hidden states, and what joins those that are not active after each layer.
Carried = tuple[list[Value], Value]


class ListedSizes(SizesByKind):
    """The sizes of all layers, whose MLPs may each have columns of their own."""

    def full_groups(self, config: ConfigJson) -> None:
        """Return None: all layers have as many heads."""

    def widths(self, config: ConfigJson, layers: int) -> list[int]:
        """Return the columns of the MLP of each layer."""
        stated = config.get("intermediate_size")
        listed = stated if isinstance(stated, list) else [stated] * layers
        if len(listed) != layers or any(type(n) is not int or n <= 0 for n in listed):
            raise config.fail(f"intermediate_size is {stated!r}, no counts of {layers} layers")
        return listed


class Widths(Largest):
    """The columns of the widest MLP; all are listed."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: [width for _, _, width in c.layer_sizes]}

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {KEYS[self.place]: ([width for _, _, width in c.layer_sizes], "arr[i32]")}


@dataclass(frozen=True)
class SameHeadDim(Derived):
    """The columns of a head in layers with a window: those of all layers."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the columns of a head."""
        return int(known["head_dim"])

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the columns of a head."""
        return int(known["head_dim"])


@dataclass(frozen=True)
class PlainRope:
    """The rotary embedding of one kind of layers, of which older folders state the base alone.

    Attributes:
        kind: Of the layers.
        key: Of the base in a file.
        older: The field of the base in older folders.
        usual: The base where they say nothing.
    """

    kind: str
    key: str
    older: str
    usual: float

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = config.get("rope_parameters")
        if isinstance(rope, dict) and FULL in rope:
            own = rope.get(self.kind)
        else:
            own = {"rope_theta": config.fields.get(self.older, self.usual)}
        theta = read_rope(config, ("default",), own)[1]["rope_theta"]
        return RopeConfig(known["head_dim"], theta)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the object of ``config.json``."""
        rope = {"rope_type": "default", "rope_theta": value.theta}
        return {"rope_parameters": {self.kind: rope}}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys describe."""
        if self.kind == FULL:
            return keys.rope(known["head_dim"])
        return RopeConfig(known["rope"].rotary_dim, keys.theta(self.key))

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the key."""
        return {self.key: (value.theta, "f32")}


@dataclass(frozen=True)
class Sparsity:
    """How many deviations above their mean the gates of each layer must be; minus infinity: any.

    ``config.json`` has the share of a normal distribution that is below them.
    """

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[float, ...]:
        """Return the value that ``config.json`` says."""
        layers, shares = known["num_hidden_layers"], config.get(SPARSITY)
        shares = shares if isinstance(shares, list) else [shares or 0.0] * layers
        numbers = all(isinstance(s, int | float) and 0 <= s < 1 for s in shares)
        if len(shares) != layers or not numbers:
            raise config.fail(f"{SPARSITY} lists no shares of {layers} layers")
        return tuple(NormalDist().inv_cdf(s) if s > 0 else -math.inf for s in shares)

    def write_config_json(self, value: tuple[float, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {SPARSITY: [_share(deviations) for deviations in value]}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[float, ...]:
        """Return the value that a file says."""
        found, layers = keys.get(SPARSITY_KEY), known["num_hidden_layers"]
        values = found.tolist() if isinstance(found, np.ndarray) else found
        numbers = isinstance(values, list) and all(isinstance(v, float) for v in values)
        if not numbers or len(values) != layers or any(not v < math.inf for v in values):
            raise keys.fail(f"{SPARSITY_KEY} does not list {layers} numbers")
        return tuple(values)

    def write_gguf(self, value: tuple[float, ...], c: Any) -> GgufKeys:
        """Return the key."""
        return {SPARSITY_KEY: (list(value), "arr[f32]")}


def _share(deviations: float) -> float:
    """Return the share of a normal distribution below so many deviations, in as few digits as say it."""
    if deviations == -math.inf:
        return 0.0
    share = NormalDist().cdf(deviations)
    found = (float(f"{share:.{digits}g}") for digits in range(1, 17))
    same = (f for f in found if f < 1 and np.float32(NormalDist().inv_cdf(f)) == deviations)
    return next(same, share)


@dataclass(frozen=True)
class LaurelRank(Derived):
    """The columns between the matrices of a low-rank residual, which a file shows by their shape."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("laurel_rank"), "laurel_rank")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"laurel_rank": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the rows of the first layer's matrix."""
        return keys.tensor_shape("blk.0.laurel_l.weight")[0]


class Streams(Stated):
    """The number of streams, for each of which a file's routers have a row."""

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says; FormatError where its tensors have others."""
        streams = keys.integer(self.key)
        router = "blk.0.altup_router.weight"
        if keys.tensor_shape(router)[:1] != (streams,):
            raise keys.fail(f"{self.key} is {streams}, but {router} has others")
        return streams


def _active_problem(known: Known, active: int) -> str:
    streams = known["altup_num_inputs"]
    return "" if active < streams else f"altup.active_idx is {active} of {streams} streams"


@dataclass(frozen=True, kw_only=True)
class Config(TwoKinds):
    """The fields of a model."""

    layer_sizes: Sizes = field(ListedSizes())
    intermediate_size: int = field(Widths(2, "intermediate_size"))
    num_key_value_heads: int = field(OfLayers(1, "num_key_value_heads"))
    head_dim: int = field(HeadDim(shared=False))
    local_head_dim: int = field(SameHeadDim())
    local_layers: tuple[bool, ...] = layers_with_window(PERIOD)
    hidden_size_per_layer_input: int = count(
        "hidden_size_per_layer_input", "embedding_length_per_layer_input"
    )
    rope: RopeConfig = field(PlainRope(FULL, "rope.freq_base", "rope_theta", 1e6))
    rope_local: RopeConfig = field(
        PlainRope(LOCAL, "rope.freq_base_swa", "rope_local_base_freq", 1e4)
    )
    altup_num_inputs: int = field(Streams(COUNT, ("altup_num_inputs",), "altup.num_inputs"))
    altup_active_idx: int = field(
        Checked(
            Stated(
                COUNT_OR_ZERO, ("altup_active_idx",), "altup.active_idx", default=0, key_default=0
            ),
            _active_problem,
        )
    )
    altup_correct_scale: bool = fixed(True, name="altup_correct_scale")
    sparsity: tuple[float, ...] = field(Sparsity())
    laurel_rank: int = field(LaurelRank())


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from outside(c)
    others = c.altup_num_inputs - 1  # than the first stream
    for parameter, tensor in STACKS.items():
        names = tuple(f"model.{parameter}.{i}.weight" for i in range(others))
        yield Tensor(names, (f"{tensor}.weight",), (Stack(others),))
    for i in range(c.num_hidden_layers):
        yield from layer_tensors(c, i, has_values=True)
        yield from decoder.matrices(i, LAUREL)
        for parameter, tensor in SMALL.items():
            yield vector(f"model.layers.{i}.{parameter}", f"blk.{i}.{tensor}")


def embed(g: Builder, c: Config, w: Weights) -> Carried:
    """Return the streams before the first layer, and the inputs of all layers."""
    h = gemma.embed(g, c, w)
    inputs = layer_inputs(g, c, w, h)
    spread = _join(g, [h] * (c.altup_num_inputs - 1))
    return [h, *_projected(g, c, w, "altup_proj", spread, like=h)], inputs


def after_layers(g: Builder, c: Config, w: Weights, carried: Carried) -> Value:
    """Return the mean of all streams, each but the first times a matrix of its own."""
    first, *others = carried[0]
    others = _projected(g, c, w, "altup_unembd_proj", _join(g, others), like=first)
    return g.scale(reduce(g.add, others, first), 1.0 / c.altup_num_inputs)


def _join(g: Builder, parts: list[Value]) -> Value:
    """Return one wide row of several."""
    return reduce(lambda a, b: g.join_heads(a, b, 1), parts)


def _projected(
    g: Builder, c: Config, w: Weights, name: str, x: Value, *, like: Value
) -> list[Value]:
    """Return the streams but the first, each times a matrix of its own and as large as ``like``."""
    hidden, count = c.hidden_size, c.altup_num_inputs - 1
    x = g.head_linear(x, w.experts(name, count, hidden, hidden))
    parts = [g.select_columns(x, i * hidden, hidden) for i in range(count)]
    return [g.match_rms(part, like, FLOOR) for part in parts]


def layer(g: Builder, c: Config, w: Weights, i: int, carried: Carried) -> Carried:
    """Return the streams after layer i, and the inputs of all layers."""
    streams, inputs = carried
    b, hidden, count = f"blk.{i}", c.hidden_size, c.altup_num_inputs
    # What the layer is expected to make of the streams, then what its one stream shows of that.
    joined = _join(g, streams)
    weights = w.matrix(f"{b}.altup_predict_coef", count * count, count)
    (mix,) = g.linear(_modalities(g, c, w, i, streams[c.altup_active_idx]), weights)
    predicted = g.add(g.mix_parts(joined, mix, count), joined)
    active = g.select_columns(predicted, c.altup_active_idx * hidden, hidden)
    activated = _active_layer(g, c, w, i, active)
    innovation = g.add(activated, g.scale(active, -1.0))
    weights = w.matrix(f"{b}.altup_correct_coef", count, count)
    (mix,) = g.linear(_modalities(g, c, w, i, activated), weights)
    mix = g.add_vector(mix, np.ones(count, dtype=np.float32))
    corrected = g.add(g.mix_parts(innovation, mix, 1), predicted)
    first, *others = (g.select_columns(corrected, j * hidden, hidden) for j in range(count))
    x = [first, *others][c.altup_active_idx]
    x = g.multiply_vector(x, w.vector(f"{b}.altup_correct_scale.weight", hidden))
    x = layer_input(g, c, w, i, x, inputs)
    return [first, *(g.add(other, x) for other in others)], inputs


def _modalities(g: Builder, c: Config, w: Weights, layer: int, x: Value) -> Value:
    """Return the inputs of the weights of the streams: [n, streams]."""
    b, hidden = f"blk.{layer}", c.hidden_size
    scale = w.vector(f"{b}.altup_router_norm.weight", hidden) / np.float32(hidden)
    x = g.rms_norm(x, scale, c.rms_norm_eps)
    (x,) = g.linear(x, w.matrix(f"{b}.altup_router", c.altup_num_inputs, hidden))
    return g.softcap(x, 1.0)  # tanh


def _active_layer(g: Builder, c: Config, w: Weights, layer: int, h: Value) -> Value:
    """Return what a layer makes of its one stream."""
    b, rank = f"blk.{layer}", c.laurel_rank
    x = norm(g, c, w, h, f"{b}.attn_norm")
    (low,) = g.linear(x, w.matrix(f"{b}.laurel_l", rank, c.hidden_size))
    (low,) = g.linear(low, w.matrix(f"{b}.laurel_r", c.hidden_size, rank))
    laurel = g.add(x, norm(g, c, w, low, f"{b}.laurel_post_norm"))
    a = norm(g, c, w, attention(g, c, w, layer, x), f"{b}.post_attention_norm")
    h = g.scale(g.add(g.add(h, a), laurel), math.sqrt(0.5))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    ff, sparsity = c.of_layer(layer).intermediate_size, c.sparsity[layer]
    gate, up = g.linear(
        x, w.matrix(f"{b}.ffn_gate", ff, c.hidden_size), w.matrix(f"{b}.ffn_up", ff, c.hidden_size)
    )
    if sparsity > -math.inf:
        gate = g.gaussian_top_k(gate, sparsity)
    (x,) = g.linear(g.geglu(gate, up), w.matrix(f"{b}.ffn_down", c.hidden_size, ff))
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


FAMILY = Family(
    "gemma3n", ("gemma3n_text",), "Gemma3n", "Gemma 3n", Config, tensors, layer, embed,
    wrapper=wrapper("gemma3n"), after_layers=after_layers,
)  # fmt: skip
