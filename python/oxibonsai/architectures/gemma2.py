"""Gemma 2: every second layer sees a window, soft caps, norms before and after each half."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.gemma import GELU, embed
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    Implied,
    Known,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS_OF_27B = 46
KINDS = ("sliding_attention", "full_attention")
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def scalar(known: Known) -> int:
    """Return what the factor of scores is the root of: in the 27B model, heads are wider than that."""
    if known["num_hidden_layers"] == LAYERS_OF_27B:
        return int(known["hidden_size"] // known["num_attention_heads"])
    return int(known["head_dim"])


def layer_types(known: Known) -> list[str]:
    """Return what each layer sees: every second one a window."""
    return [KINDS[i % 2] for i in range(known["num_hidden_layers"])]


def cap(name: str, usual: float) -> Any:
    """Return the field of a cap, which is the published models' where nothing says."""
    return real(name, name, default=usual, key_default=usual, none_is=0.0)


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = real(
        (), "attention.scale", default=lambda known: scalar(known) ** -0.5,
        key_default=lambda known: scalar(known) ** -0.5, unsaid=True,
    )  # fmt: skip
    sliding_window: int = count("sliding_window", "attention.sliding_window", key_default=4096)
    attn_logit_softcapping: float = cap("attn_logit_softcapping", 50.0)
    final_logit_softcapping: float = cap("final_logit_softcapping", 30.0)
    rope: RopeConfig = field(Rope(("default",)))
    activation: str = fixed(GELU, name="hidden_activation")
    attention_bias: bool = fixed(False, name="attention_bias")
    query_pre_attn_scalar: int = field(Implied("query_pre_attn_scalar", scalar))
    kinds: list[str] = field(Implied("layer_types", layer_types))
    sliding_window_pattern: int = constant(2)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield from decoder.outside(c, Add(1.0))
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, Add(1.0))
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b, window = f"blk.{i}", c.sliding_window if i % 2 == 0 else 0
    x = norm(g, c, w, h, f"{b}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i, window=window)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i, g.geglu)
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


FAMILY = Family("gemma2", ("gemma2",), "Gemma2", "Gemma 2", Config, tensors, layer, embed)
