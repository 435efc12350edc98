"""OLMoE: q and k normalised over all heads at once, experts in every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.decoder import HeadDim
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    head_dim: int = field(HeadDim(written=False))
    moe_intermediate_size: int = mixture.dense_width()
    norm_topk_prob: bool = fixed(False, name="norm_topk_prob")
    attention_bias: bool = fixed(False, name="attention_bias")
    clip_qkv: float | None = fixed(None, name="clip_qkv")
    rope: RopeConfig = field(Rope(("default", "linear", "yarn")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, decoder.ATTENTION)
        yield from mixture.router(i, "mlp.gate")
        yield from mixture.each_expert(c, i)


def add_attention(g: Builder, c: Mixture, w: Weights, i: int, h: Value) -> Value:
    """Return h and what attention of layer i gives, whose norms are over all heads at once."""
    b = f"blk.{i}"
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    q, k = norm(g, c, w, q, f"{b}.attn_q_norm"), norm(g, c, w, k, f"{b}.attn_k_norm")
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    return blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = add_attention(g, c, w, i, h)
    return mixture.add_experts(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, h)


FAMILY = Family("olmoe", ("olmoe",), "Olmoe", "OLMoE", Config, tensors, layer)
