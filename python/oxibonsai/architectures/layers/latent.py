"""Latent attention (DeepSeek, MiniCPM 3, Mistral 4): the cache holds one vector for all heads.

Keys and values are matrices times one latent vector of a token. Queries are multiplied with the keys'
matrices instead, and results with the values': so the cache holds the latent vector and the rotated part
of the keys, for all heads at once, and a value is what its key begins with.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Protocol

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Layered, Normed, Weights
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True)
class LatentConfig:
    """Latent attention: the cache holds one vector for all heads, of which keys and values are made.

    Attributes:
        q_lora_rank: Width of the queries' latent vector; 0: queries are projected directly.
        kv_lora_rank: Of that of keys and values.
        qk_nope_head_dim, qk_rope_head_dim: Dims of a head's query that are not rotated, and that are.
        v_head_dim: Of a head's value.
        norm_eps: Of the norms of both; 0: that of the other norms.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    norm_eps: float = 0.0

    @property
    def cache_dim(self) -> int:
        """Return the values that a token has in the cache of a layer."""
        return self.kv_lora_rank + self.qk_rope_head_dim


class Latent(Layered, Normed, Protocol):
    """A model whose layers attend by latent vectors."""

    @property
    def num_attention_heads(self) -> int:
        """Heads of queries."""
        ...

    @property
    def attention_scale(self) -> float:
        """Factor of the scores."""
        ...

    @property
    def rope(self) -> RopeConfig:
        """The rotary embedding of the rotated dims."""
        ...

    @property
    def rope_query(self) -> RopeConfig | None:
        """How queries grow with their position; None: they do not."""
        ...

    @property
    def latent(self) -> LatentConfig:
        """Sizes of the latent vectors and of the heads."""
        ...


def yarn_factor(rope: RopeConfig, multiplier: float) -> float:
    """Return 1 + multiplier * ln(factor), by decimals, since libm's logarithm differs between machines."""
    if rope.scaling != "yarn":
        return 1.0
    with localcontext() as context:
        context.prec = 40
        return float(1 + Decimal(multiplier) * Decimal(rope.factor).ln())


def latent_attention(
    g: Builder, c: Latent, w: Weights, layer: int, x: Value, *, add: Value | None
) -> Value:
    """Return the layer's normed input x through its attention, plus ``add``."""
    d = c.latent
    b, hidden, heads = f"blk.{layer}", c.hidden_size, c.num_attention_heads
    eps = d.norm_eps or c.rms_norm_eps
    nope, rope = d.qk_nope_head_dim, d.qk_rope_head_dim
    q_width = heads * (nope + rope)
    kv_a = w.matrix(f"{b}.attn_kv_a_mqa", d.cache_dim, hidden)
    if d.q_lora_rank:
        q, kv = g.linear(x, w.matrix(f"{b}.attn_q_a", d.q_lora_rank, hidden), kv_a)
        q = g.rms_norm(q, w.vector(f"{b}.attn_q_a_norm.weight", d.q_lora_rank), eps)
        (q,) = g.linear(q, w.matrix(f"{b}.attn_q_b", q_width, d.q_lora_rank))
    else:
        q, kv = g.linear(x, w.matrix(f"{b}.attn_q", q_width, hidden), kv_a)
    latent = g.select_columns(kv, 0, d.kv_lora_rank, d.cache_dim)
    latent = g.rms_norm(latent, w.vector(f"{b}.attn_kv_a_norm.weight", d.kv_lora_rank), eps)
    k_rope = g.select_columns(kv, d.kv_lora_rank, rope, d.cache_dim)
    q_rope = g.rope(g.select_columns(q, nope, rope, nope + rope), c.rope, rope)
    q_nope = g.select_columns(q, 0, nope, nope + rope)
    if w.has(f"{b}.attn_k_b.weight"):
        k_b = w.experts(f"{b}.attn_k_b", heads, d.kv_lora_rank, nope)
        v_b = w.experts(f"{b}.attn_v_b", heads, d.v_head_dim, d.kv_lora_rank)
    else:
        k_b, v_b = w.keys_and_values(f"{b}.attn_kv_b", heads, nope, d.v_head_dim, d.kv_lora_rank)
    q = g.join_heads(g.head_linear(q_nope, k_b), q_rope, heads)
    if c.rope_query is not None:
        q = g.temper(q, c.rope_query, d.cache_dim)
    a = g.attention(
        q,
        g.join_heads(latent, g.rope(k_rope, c.rope, rope), 1),
        None,
        layer=layer,
        head_dim=d.cache_dim,
        value_dim=d.kv_lora_rank,
        scale=c.attention_scale,
    )
    return blocks.attention_output(g, c, w, g.head_linear(a, v_b), layer, add=add)
