"""gpt-oss: attention with sinks, every other layer within a window; experts with biases.

Folders have all experts of a layer in one parameter, gate and up in turns: floats with columns for rows,
or MXFP4 as files have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope, YarnNumbers
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Known, constant, count, field, fixed
from oxibonsai.architectures.schema.operations import (
    MergeAxes,
    Operation,
    Split,
    SplitAxis,
    Transpose,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Either, Entry, Tensor, bias, vector
from oxibonsai.architectures.windows import LocalLayers, window_of
from oxibonsai.graph import Builder, RopeConfig, Value

NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}


@dataclass(frozen=True)
class ExactYarn(Rope):
    """YaRN whose ramp begins and ends between pairs, where other models round that to a pair."""

    def read_object(self, config: ConfigJson, known: Known, rope: Any) -> RopeConfig:
        """Return the embedding; UnsupportedError where ``config.json`` rounds the ramp."""
        stated = config.get("rope_parameters", "rope_scaling")
        if not isinstance(stated, dict) or stated.get("truncate") is not False:
            raise config.unsupported("truncate of the rotary embedding is not false")
        return replace(super().read_object(config, known, rope), ramp_of_pairs=False)

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        return replace(super().read_gguf(keys, known), ramp_of_pairs=False)


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    moe_intermediate_size: int = count("intermediate_size", "expert_feed_forward_length")
    scoring: str = constant("softmax_of_chosen")
    norm_topk_prob: bool = constant(False)
    attention_bias: bool = fixed(True, name="attention_bias")
    swiglu_alpha: float = fixed(1.702, name="swiglu_alpha")
    swiglu_limit: float = fixed(7.0, name="swiglu_limit")
    sliding_window: int = count("sliding_window", "attention.sliding_window")
    local_layers: tuple[bool, ...] = field(LocalLayers(2, keyed=False))
    rope: RopeConfig = field(ExactYarn(("yarn",), also=("beta_fast", "beta_slow", "truncate")))
    yarn: tuple[tuple[str, float], ...] = field(YarnNumbers())


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        stem, b = f"model.layers.{i}", f"blk.{i}"
        yield from decoder.norms(i, NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION, biased=True)
        yield vector(f"{stem}.self_attn.sinks", f"{b}.attn_sinks.weight")
        yield from mixture.router(i, "mlp.router")
        yield bias(f"{stem}.mlp.router", f"{b}.ffn_gate_inp")
        yield from _experts(c, f"{stem}.mlp.experts", f"{b}.ffn")


def _experts(c: Config, stem: str, b: str) -> Iterator[Entry]:
    width = c.moe_intermediate_size
    in_turns = (  # of gate and up
        SplitAxis(width, axis=1),
        Split((1, 1), axis=2),
        MergeAxes(width, axis=1),
    )

    def weights(end: str, *first: Operation) -> tuple[Tensor, ...]:
        both = (f"{b}_gate_exps.weight", f"{b}_up_exps.weight")
        return (
            Tensor((f"{stem}.gate_up_proj{end}",), both, (*first, *in_turns)),
            Tensor((f"{stem}.down_proj{end}",), (f"{b}_down_exps.weight",), first),
        )

    yield Either((weights("", Transpose()), weights("_blocks")))
    biases = (f"{b}_gate_exps.bias", f"{b}_up_exps.bias")
    yield Tensor((f"{stem}.gate_up_proj_bias",), biases, in_turns, matrix=False)
    yield vector(f"{stem}.down_proj_bias", f"{b}_down_exps.bias")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = g.attention(
        q,
        k,
        v,
        layer=i,
        head_dim=c.head_dim,
        scale=c.attention_scale,
        window=window_of(c, i),
        sinks=w.vector(f"{b}.attn_sinks.weight", c.num_attention_heads),
    )
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = norm(g, c, w, h, f"{b}.post_attention_norm")
    routing = experts.route(g, c, w, x, i)
    return g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.clamped_swiglu))


FAMILY = Family("gpt-oss", ("gpt_oss",), "GptOss", "gpt-oss", Config, tensors, layer)
