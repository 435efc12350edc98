"""Qwen3 (every dense Bonsai): q and k are normalised per head before they are rotated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Normed, Rotating, Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


class Attended(Normed, Rotating, Protocol):
    """A model with the attention of Qwen3."""


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    use_sliding_window: bool = fixed(False, name="use_sliding_window", written=False)
    rope: RopeConfig = field(Rope(("default", "linear", "dynamic", "yarn")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from tensors_of_layers(c)


def tensors_of_layers(c: Config) -> Iterator[Entry]:
    """Yield the tensors of all layers."""
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def add_attention(
    g: Builder, c: Attended, w: Weights, i: int, h: Value, *, window: int = 0, rotates: bool = True
) -> Value:
    """Return h and what attention of layer i gives, whose heads are normalised and then rotated.

    Args:
        g: Of the pass.
        c: The model's config.
        w: Its tensors.
        i: The layer.
        h: Hidden states.
        window: Keys that a query sees, itself counted; 0: all.
        rotates: False leaves out the rotation.
    """
    b = f"blk.{i}"
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    q, k = blocks.head_norms(g, c, w, q, k, i)
    if rotates:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = blocks.attention(g, c, q, k, v, i, window=window)
    return blocks.attention_output(g, c, w, a, i, add=h)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = add_attention(g, c, w, i, h)
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family(
    "qwen3", ("qwen3",), "Qwen3", "Qwen3", Config, tensors, layer, embed_tokens_and_images,
    scores_texts=True,
)  # fmt: skip
