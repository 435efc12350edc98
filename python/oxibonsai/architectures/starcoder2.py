"""StarCoder2: LayerNorm, rotated heads, GELU without a gate, biases everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import biased, count_or_zero, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

PARTS = {**decoder.ATTENTION, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    layer_norm_eps: float = decoder.layer_norm_epsilon("norm_epsilon")
    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("gelu_pytorch_tanh", name="hidden_act")
    use_bias: bool = biased("use_bias", *PARTS.values(), default=True)
    sliding_window: int = count_or_zero(
        "sliding_window", "attention.sliding_window", default=0, unsaid=True, none_is=0
    )
    rope: RopeConfig = field(Rope(("default", "linear")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, biased=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, biased=True)
        yield from decoder.matrices(i, PARTS, biased=c.use_bias)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i, window=c.sliding_window)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.plain_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.gelu_tanh, add=h)


FAMILY = Family("starcoder2", ("starcoder2",), "Starcoder2", "StarCoder2", Config, tensors, layer)
