"""OLMo: norms without weights, q, k and v within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Normed, Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import POSITIVE, field, fixed, real
from oxibonsai.architectures.schema.tensors import Entry, weight
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    layer_norm_eps: float = decoder.layer_norm_epsilon()  # transformers has one for all models
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    clamp_kqv: float = real(
        "clip_qkv", "attention.clamp_kqv", POSITIVE, default=0.0, key_default=0.0, unsaid=True,
        none_is=0.0,
    )  # fmt: skip
    rope: RopeConfig = field(Rope(("default", "linear", "dynamic"), interleaved=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield weight("model.embed_tokens", "token_embd")
    yield weight("lm_head", "output", optional=c.tie_word_embeddings)
    for i in range(c.num_hidden_layers):
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP}, decoder.pairs(c))


def norm(g: Builder, c: Normed, w: Weights, x: Value) -> Value:
    """Return a LayerNorm without a weight, of every half and before the output matrix."""
    return g.layer_norm(x, np.ones(x.cols, dtype=np.float32), None, c.layer_norm_eps)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h), i, g.swiglu, add=h)


FAMILY = Family("olmo", ("olmo",), "Olmo", "OLMo", Config, tensors, layer, final_norm=norm)
