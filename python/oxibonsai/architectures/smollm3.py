"""SmolLM3: Llama's layers, of which every fourth knows no positions."""

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
from oxibonsai.architectures.schema.fields import Implied, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


def is_rotated(layer: int) -> bool:
    """Return whether a layer knows positions."""
    return (layer + 1) % 4 != 0


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    use_sliding_window: bool = fixed(False, None, name="use_sliding_window")
    rotated_layers: list[int] = field(
        Implied(
            "no_rope_layers",
            lambda known: [int(is_rotated(i)) for i in range(known["num_hidden_layers"])],
        )
    )
    rope: RopeConfig = field(
        Rope(("default", "linear", "dynamic", "yarn"), interleaved=True, counted=True)
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP}, decoder.pairs(c))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    if is_rotated(i):
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.swiglu, add=h)


FAMILY = Family("smollm3", ("smollm3",), "SmolLM3", "SmolLM3", Config, tensors, layer)
