"""Latent attention (DeepSeek, MiniCPM 3, Mistral 4): the cache holds one vector for all heads.

Keys and values are matrices times one latent vector of a token. Queries are multiplied with the keys'
matrices instead, and results with the values': so the cache holds the latent vector and the rotated part
of the keys, for all heads at once, and a value is what its key begins with.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.config import LatentConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_latent(keys: Keys, *, norm_eps: float = 0.0) -> tuple[LatentConfig, int]:
    """Dimensions of latent attention, and the width of its keys and values in the cache.

    The heads of the keys ``_mla`` are those before queries meet the keys' matrices. Files without them
    hold keys and values as one matrix, and their dims in the plain keys.

    Args:
        keys: Of the file.
        norm_eps: Of the norms of latent vectors; 0: that of the other norms.
    """
    rope, rank = keys.integer("rope.dimension_count"), keys.integer("attention.kv_lora_rank")
    heads = keys.integer("attention.head_count")
    apart = keys.has("attention.key_length_mla")
    if apart:
        head, value = keys.integer("attention.key_length_mla"), "attention.value_length_mla"
        cached = (rank + rope, rank)
        stated = tuple(keys.integer(f"attention.{p}_length") for p in ("key", "value"))
        if stated != cached:
            raise keys.fail(f"keys and values of {stated} dims in the cache, where {cached} follow")
    else:
        head, value = keys.integer("attention.key_length"), "attention.value_length"
    kv_heads = keys.integer("attention.head_count_kv", 1 if apart else heads)
    if kv_heads != (1 if apart else heads) or head <= rope:
        raise keys.fail(f"heads of {head} dims, {rope} of them rotated, are no latent attention")
    hidden = keys.integer("embedding_length")
    default = hidden // heads if not apart and hidden % heads == 0 else None
    latent = LatentConfig(
        q_lora_rank=keys.count("attention.q_lora_rank"),
        kv_lora_rank=rank,
        qk_nope_head_dim=head - rope,
        qk_rope_head_dim=rope,
        v_head_dim=keys.integer(value, default),
        norm_eps=norm_eps,
    )
    return latent, head


def yarn_factor(rope: RopeConfig, multiplier: float) -> float:
    """1 + multiplier * ln(factor), by decimals, since libm's logarithm differs between machines."""
    if rope.scaling != "yarn":
        return 1.0
    with localcontext() as context:
        context.prec = 40
        return float(1 + Decimal(multiplier) * Decimal(rope.factor).ln())


def latent_attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, *, add: Value | None
) -> Value:
    """Return the layer's normed input x through its attention, plus ``add``."""
    d = c.latent
    assert d is not None
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
