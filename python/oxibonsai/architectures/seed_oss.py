"""Seed-OSS: Llama's layers with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import biased, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

OUTPUT = {"self_attn.o_proj": "attn_output"}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.QKV.values(), default=True)
    attention_out_bias: bool = fixed(False, name="attention_out_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    rope: RopeConfig = field(Rope(("default", "linear", "yarn")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        norms = {**decoder.NORMS, "post_attention_layernorm": "post_attention_norm"}
        yield from decoder.norms(i, norms)
        yield from decoder.matrices(i, decoder.QKV, biased=c.attention_bias)
        yield from decoder.matrices(i, {**OUTPUT, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = norm(g, c, w, h, f"blk.{i}.post_attention_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family("seed_oss", ("seed_oss",), "SeedOss", "Seed-OSS", Config, tensors, layer)
