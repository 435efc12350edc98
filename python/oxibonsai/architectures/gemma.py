"""Gemma: scaled embeddings, GELU units; norms hold 1 + w."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Layered, Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

GELU = "gelu_pytorch_tanh"


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed(GELU, "gelu", name="hidden_act")
    newer_activation: None = fixed(None, GELU, name="hidden_activation", written=False)
    attention_bias: bool = fixed(False, name="attention_bias")
    rope: RopeConfig = field(Rope(("default",)))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, Add(1.0))
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, Add(1.0))
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def embed(g: Builder, c: Layered, w: Weights) -> Value:
    """Return the scaled rows of the token table."""
    return g.scale(g.embed(w.embedding(c)), math.sqrt(c.hidden_size))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.geglu, add=h)


FAMILY = Family("gemma", ("gemma",), "Gemma", "Gemma", Config, tensors, layer, embed)
