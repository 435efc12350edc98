"""Mixture of depths (arXiv 2404.02258): Llama's layers, some of which tokens may pass by.

A router gives each token a number. Those above zero go through the layer, where they attend to each other
alone, and what the layer adds is multiplied by the number; the others stay as they are. In training a
layer takes a fixed share of a text, its capacity: those with the largest numbers, also of tokens that
come later. A decoder cannot know these, so it takes the router's number against zero, where the paper's
auxiliary loss puts the boundary of the share. The capacity stays in the file as what it was in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oxibonsai.architectures import decoder, llama
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    FACTOR,
    Checked,
    Known,
    Stated,
    count,
    field,
)
from oxibonsai.architectures.schema.tensors import Entry, weight
from oxibonsai.graph import Builder, Value

ROUTER = "depth_router"
# A key of a token that passes by has the product of these as its score. They fit every type of pages.
HIDDEN_KEY, HIDDEN_QUERY = -256.0, 64.0


def _share_problem(known: Known, value: float) -> str:
    """Return what is wrong with a share of the tokens; empty: nothing is."""
    return "" if value <= 1.0 else f"the capacity {value:g} is more than all tokens, which is 1"


@dataclass(frozen=True, kw_only=True)
class Config(llama.UnwindowedConfig):
    """The fields of a model."""

    routed_interval: int = count("mod_interval", f"{ROUTER}.interval", default=2, key_default=2)
    capacity: float = field(
        Checked(
            Stated(FACTOR, ("mod_capacity",), f"{ROUTER}.capacity", default=0.5, key_default=0.5),
            _share_problem,
        )
    )

    def is_routed(self, layer: int) -> bool:
        """Return whether tokens may pass a layer by."""
        return (layer + 1) % self.routed_interval == 0


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from llama.tensors(c)
    for i in range(c.num_hidden_layers):
        if c.is_routed(i):
            yield weight(f"{decoder.LAYERS}.{i}.mod_router", f"blk.{i}.{ROUTER}")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    if not c.is_routed(i):
        return decoder.layer(g, c, w, i, h)
    (number,) = g.linear(h, w.row(f"blk.{i}.{ROUTER}", c.hidden_size))
    a = attention_among_chosen(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), number)
    a = blocks.attention_output(g, c, w, a, i)
    x = norm(g, c, w, g.add(h, a), f"blk.{i}.ffn_norm")
    added = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=a)
    return g.add(h, g.mix_parts(added, g.relu(number), 1))


def attention_among_chosen(
    g: Builder, c: Config, w: Weights, i: int, x: Value, number: Value
) -> Value:
    """Return attention to the tokens that go through the layer.

    Heads get one more column: in keys HIDDEN_KEY where the token passes by (half of it where its number is
    zero), else zero; in queries what makes either a score of which no weight is left.
    """
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    half = np.array([HIDDEN_KEY / 2], dtype=np.float32)
    chosen = g.clamp(g.scale(number, 1e30), -HIDDEN_KEY / 2)  # with the number's sign, or 0
    hidden = g.scale(g.add_vector(chosen, half), -1.0)
    q = g.join_heads(q, _column(g, c, q, HIDDEN_QUERY / c.attention_scale), c.num_attention_heads)
    column = g.mix_parts(_column(g, c, k, -1.0), hidden, 1)
    k = g.join_heads(k, column, c.num_key_value_heads)
    return g.attention(
        q, k, v, layer=i, head_dim=c.head_dim + 1, value_dim=c.head_dim, scale=c.attention_scale
    )


def _column(g: Builder, c: Config, x: Value, value: float) -> Value:
    """Return a column for each head of x, which has one value everywhere."""
    zeros = g.scale(g.select_columns(x, 0, 1, c.head_dim), 0.0)
    return g.add_vector(zeros, np.full(zeros.cols, value, dtype=np.float32))


FAMILY = Family(
    "mixture-of-depths", ("mixture_of_depths",), "MixtureOfDepths", "mixture of depths", Config,
    tensors, layer,
)  # fmt: skip
