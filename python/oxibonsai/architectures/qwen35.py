"""Qwen3.5 (Bonsai 27B): gated delta rules, and every few layers attention with an output gate."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Constants, RmsNormed
from oxibonsai.architectures.drafting import DraftingLayers, layers_of_pass
from oxibonsai.architectures.hybrid import FULL_ATTENTION, LINEAR_ATTENTION, ByLayer
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.gated_delta import GatedDeltaConfig, Linear, linear_attention
from oxibonsai.architectures.layers.sizes import Rotating, Weights
from oxibonsai.architectures.rotary import rotary_dims
from oxibonsai.architectures.schema import tensors as entries
from oxibonsai.architectures.schema.arithmetic import Add, NegativeExp
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Default,
    GgufKeys,
    Kind,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.operations import (
    Concatenate,
    MergeAxes,
    OnPart,
    Operation,
    PermuteGrid,
    Split,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, LeftOut, Tensor, vector, weight
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.sectioned_rope import SectionedRope, Sections
from oxibonsai.graph import Builder, RopeConfig, Value

# What folders leave to transformers' defaults: of a head's dims the share that is rotated, how many layers
# make up a period, and which axis of an image's positions turns a pair.
ROTARY_SHARE, INTERVAL, SECTIONS = 0.25, 4, (11, 11, 10, 0)
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}
# Of the layer that predicts further tokens, beside the parts of any layer.
MTP = {"fc": "eh_proj"}
MTP_NORMS = {
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head_norm",
}


def drafting_count(names: Collection[str], layers: int) -> int:
    """Return 1 where a folder has one layer that predicts further tokens; several are left out."""
    parts = (name.removeprefix("model.").split(".") for name in names)
    return int({part[2] for part in parts if part[:2] == ["mtp", "layers"]} == {"0"})


@dataclass(frozen=True)
class ValueHeadDim:
    """The columns of a value head, of which a file states those of all heads."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        name = "linear_value_head_dim"
        return config.count(config.get(name), name)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"linear_value_head_dim": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        heads, inner = known["linear_num_value_heads"], keys.integer("ssm.inner_size")
        key_heads = known["linear_num_key_heads"]
        if inner % heads != 0 or heads % key_heads != 0:
            raise keys.fail(
                f"{inner} inner values, {heads} value heads and {key_heads} key heads do not divide"
            )
        return int(inner // heads)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"ssm.inner_size": (value * c.linear_num_value_heads, "u32")}


@dataclass(frozen=True)
class RotaryDim:
    """The dims of a head that are rotated."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return rotary_dims(config, known["head_dim"], share=ROTARY_SHARE)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return no field: the rotary embedding has it."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("rope.dimension_count", known["head_dim"])

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"rope.dimension_count": (value, "u32")}


@dataclass(frozen=True)
class Interval(Stated):
    """How many layers make up a period, where nothing lists them."""

    kind: Kind = COUNT
    names: tuple[str, ...] = ("full_attention_interval",)
    key: str = "full_attention_interval"
    default: Default = INTERVAL
    key_default: Default = INTERVAL

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, unless it is the usual one."""
        return {} if value == INTERVAL else super().write_config_json(value, c)


@dataclass(frozen=True)
class LayerTypes:
    """Whether each layer attends: listed, or every n-th does."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[str, ...]:
        """Return the kinds that ``config.json`` says."""
        layers, kinds = known["num_hidden_layers"], config.fields.get("layer_types")
        if kinds is None:
            return _every(known["full_attention_interval"], layers)
        known_kinds = {FULL_ATTENTION, LINEAR_ATTENTION}
        if not isinstance(kinds, list) or len(kinds) != layers or not known_kinds.issuperset(kinds):
            raise config.fail(
                f"layer_types does not say of {layers} layers which of {FULL_ATTENTION} and "
                f"{LINEAR_ATTENTION} they are"
            )
        return tuple(kinds)

    def write_config_json(self, value: tuple[str, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"layer_types": list(value)}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[str, ...]:
        """Return the kinds that a file says."""
        layers = known["num_hidden_layers"]
        listed = keys.get("attention.recurrent_layers")
        if listed is None:
            return _every(known["full_attention_interval"], layers)
        values = listed.tolist() if isinstance(listed, np.ndarray) else listed
        whole = isinstance(values, list) and all(isinstance(v, bool) for v in values)
        if not whole or len(values) < layers:
            raise keys.fail(f"attention.recurrent_layers does not list {layers} layers")
        return tuple(
            LINEAR_ATTENTION if recurrent else FULL_ATTENTION for recurrent in values[:layers]
        )

    def write_gguf(self, value: tuple[str, ...], c: Any) -> GgufKeys:
        """Return the key, which lists the layers that do not attend."""
        return {
            "attention.recurrent_layers": (
                [kind == LINEAR_ATTENTION for kind in value],
                "arr[bool]",
            )
        }


def _every(interval: int, layers: int) -> tuple[str, ...]:
    return tuple(LINEAR_ATTENTION if (i + 1) % interval else FULL_ATTENTION for i in range(layers))


def sectioned_rope(usual: tuple[int, ...]) -> SectionedRope:
    """Return the rotary embedding of Qwen3.5, with the sections that folders leave out."""
    return SectionedRope(("default",), share=ROTARY_SHARE, sections=Sections(usual))


@dataclass(frozen=True, kw_only=True)
class DeltaRules(ByLayer):
    """The fields of layers that attend or have a gated delta rule."""

    num_hidden_layers: int = layers_of_pass()
    num_nextn_predict_layers: int = field(DraftingLayers(drafting_count))
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    linear_conv_kernel_dim: int = count("linear_conv_kernel_dim", "ssm.conv_kernel")
    linear_key_head_dim: int = count("linear_key_head_dim", "ssm.state_size")
    linear_num_key_heads: int = count("linear_num_key_heads", "ssm.group_count")
    linear_num_value_heads: int = count("linear_num_value_heads", "ssm.time_step_rank")
    linear_value_head_dim: int = field(ValueHeadDim())
    full_attention_interval: int = field(Interval())
    rotary_dim: int = field(RotaryDim())
    layer_types: tuple[str, ...] = field(LayerTypes())
    rope: RopeConfig = field(sectioned_rope(SECTIONS))
    sections: tuple[int, ...] = field(Sections(SECTIONS))
    tiled_heads: bool = constant(True)  # of values; else those that share a key head are neighbours

    @property
    def gated_delta(self) -> GatedDeltaConfig:
        """Sizes of the gated delta rules."""
        return GatedDeltaConfig(
            self.linear_conv_kernel_dim, self.linear_num_key_heads, self.linear_num_value_heads,
            self.linear_key_head_dim, self.linear_value_head_dim,
        )  # fmt: skip

    def attends(self, layer: int) -> bool:
        """Return whether a layer has keys and values in the cache; those that draft all do."""
        return layer >= len(self.layer_types) or super().attends(layer)


@dataclass(frozen=True, kw_only=True)
class Config(DeltaRules, Constants, RmsNormed):
    """The fields of a model."""


class Hybrid(Linear, Rotating, Protocol):
    """A model whose layers attend or have a gated delta rule."""

    def attends(self, layer: int) -> bool:
        """Return whether a layer has keys and values in the cache."""
        ...

    def cached_layer(self, layer: int) -> int:
        """Return which layer of the cache a layer that attends has."""
        ...


def tiled(c: DeltaRules, width: int, axis: int = 0) -> tuple[Operation, ...]:
    """Return what puts value heads of ``width`` in an order in which head h shares key head h % key heads.

    Those that share one are neighbours in a folder.
    """
    keys = c.linear_num_key_heads
    shared = c.linear_num_value_heads // keys
    if keys == 1 or shared == 1 or not c.tiled_heads:
        return ()
    return (PermuteGrid((keys, shared, width), (1, 0, 2), axis),)


def projections(c: DeltaRules, i: int) -> Iterator[Entry]:
    """Yield the matrices before a gated delta rule."""
    p, b, width = f"model.layers.{i}.linear_attn", f"blk.{i}", c.linear_value_head_dim
    yield weight(f"{p}.in_proj_qkv", f"{b}.attn_qkv", *_behind_keys(c))
    yield weight(f"{p}.in_proj_z", f"{b}.attn_gate", *tiled(c, width))
    yield weight(f"{p}.in_proj_a", f"{b}.ssm_alpha", *tiled(c, 1))
    yield weight(f"{p}.in_proj_b", f"{b}.ssm_beta", *tiled(c, 1))


def delta_tensors(c: DeltaRules, i: int) -> Iterator[Entry]:
    """Yield what a gated delta rule has behind its projections."""
    p, b, width = f"model.layers.{i}.linear_attn", f"blk.{i}", c.linear_value_head_dim
    channels = 2 * c.gated_delta.key_width + c.gated_delta.value_width
    yield entries.norm(f"{p}.conv1d", f"{b}.ssm_conv1d", MergeAxes(channels), *_behind_keys(c))
    yield vector(f"{p}.A_log", f"{b}.ssm_a", *tiled(c, 1), NegativeExp())
    yield vector(f"{p}.dt_bias", f"{b}.ssm_dt.bias", *tiled(c, 1))
    yield entries.norm(f"{p}.norm", f"{b}.ssm_norm")
    yield weight(f"{p}.out_proj", f"{b}.ssm_out", *tiled(c, width, axis=1))


def _behind_keys(c: DeltaRules) -> tuple[Operation, ...]:
    """Return what puts values in the order of their heads, where queries and keys stand before them."""
    parts = (2 * c.gated_delta.key_width, c.gated_delta.value_width)
    return tuple(
        step
        for order in tiled(c, c.linear_value_head_dim)
        for step in (Split(parts), OnPart(1, order), Concatenate(parts))
    )


def attention_tensors(i: int) -> Iterator[Tensor]:
    """Yield what a layer that attends has."""
    yield from decoder.norms(i, decoder.HEAD_NORMS, Add(1.0))
    yield from decoder.matrices(i, decoder.ATTENTION)


def drafting_tensors(c: Config, layer: Iterator[Tensor]) -> Iterator[Entry]:
    """Yield what the layer that predicts further tokens has; without one, folders may have several.

    Args:
        c: The model's config.
        layer: What a layer of that number has, by the names of any other.
    """
    if c.num_nextn_predict_layers == 0:
        yield LeftOut("mtp.*")
        return
    number = c.num_hidden_layers
    for entry in layer:
        (name,) = entry.parameters
        yield replace(entry, parameters=(name.replace(f"model.layers.{number}.", "mtp.layers.0."),))
    for parameter, tensor in MTP.items():
        yield weight(f"mtp.{parameter}", f"blk.{number}.nextn.{tensor}")
    for parameter, tensor in MTP_NORMS.items():
        yield entries.norm(f"mtp.{parameter}", f"blk.{number}.nextn.{tensor}", Add(1.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield from decoder.outside(c, Add(1.0))
    for i in range(c.num_hidden_layers):
        yield from _around(i)
        if c.attends(i):
            yield from attention_tensors(i)
        else:
            yield from projections(c, i)
            yield from delta_tensors(c, i)
    yield from drafting_tensors(c, _drafting(c.num_hidden_layers))


def _around(i: int) -> Iterator[Tensor]:
    yield from decoder.norms(i, NORMS, Add(1.0))
    yield from decoder.matrices(i, decoder.MLP)


def _drafting(i: int) -> Iterator[Tensor]:
    yield from _around(i)
    yield from attention_tensors(i)


def own_name(parameter: str) -> str:
    """Return the family's name of a parameter of the layer that predicts further tokens."""
    return parameter.removeprefix("model.") if parameter.startswith("model.mtp.") else parameter


def gated_attention(
    g: Builder, c: Hybrid, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Return the layer's normed input x through its attention, added to ``residual``.

    The projection of a query gives the head's query, then the gate of its result.
    """
    b = f"blk.{layer}"
    hidden, dim, eps = c.hidden_size, c.head_dim, c.rms_norm_eps
    q_width, kv_width = c.num_attention_heads * dim, c.num_key_value_heads * dim
    both, k, v = g.linear(
        x,
        w.matrix(f"{b}.attn_q", 2 * q_width, hidden),
        w.matrix(f"{b}.attn_k", kv_width, hidden),
        w.matrix(f"{b}.attn_v", kv_width, hidden),
    )
    q = g.select_columns(both, 0, dim, 2 * dim)
    gate = g.select_columns(both, dim, dim, 2 * dim)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", dim), eps)
    q, k = g.rope(q, c.rope, dim), g.rope(k, c.rope, dim)
    a = g.attention(q, k, v, layer=c.cached_layer(layer), head_dim=dim, scale=c.attention_scale)
    a = g.sigmoid_gate(gate, a)
    (h,) = g.linear(a, w.matrix(f"{b}.attn_output", hidden, q_width), add=residual)
    return h


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    mix = gated_attention if c.attends(i) else linear_attention
    return _feed_forward(g, c, w, i, mix(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), h))


def drafting_layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after a layer that predicts further tokens, which attends."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    return _feed_forward(g, c, w, i, gated_attention(g, c, w, i, x, h))


def _feed_forward(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    x = norm(g, c, w, h, f"blk.{i}.post_attention_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family(
    "qwen35", ("qwen3_5_text",), "Qwen3_5", "Qwen3.5", Config, tensors, layer,
    embed_tokens_and_images, spelled=own_name, drafting_layer=drafting_layer,
    wrapper=Wrapper(("qwen3_5",)),
)  # fmt: skip
