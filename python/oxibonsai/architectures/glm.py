"""GLM-4: a part of each head is rotated; in the 0414 models norms before and after each half."""

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

PARTS = {
    "self_attn.o_proj": "attn_output",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
AFTER = {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.QKV.values())
    rope: RopeConfig = field(Rope(("default",), interleaved=True, counted=True, share=0.5))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.QKV, biased=c.attention_bias)
        yield from decoder.matrices(i, PARTS)


def tensors_0414(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model that has a norm after each half, too."""
    yield from tensors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, AFTER)


def layer_0414(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of a model with these norms."""
    b = f"blk.{i}"
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i, g.swiglu)
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


GLM = Family("chatglm", ("glm",), "Glm", "GLM", Config, tensors, decoder.layer)
GLM4 = Family("glm4", ("glm4",), "Glm4", "GLM-4", Config, tensors_0414, layer_0414)
