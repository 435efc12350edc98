"""DeepSeek V2 and V3, Kimi K2: latent attention, then experts of which only some groups count.

Keys and values are matrices times one latent vector of a token. Queries are multiplied with the keys'
matrices instead, and results with the values': so the cache holds the latent vector and the rotated part
of the keys, for all heads at once, and a value is what its key begins with.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext

from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models import blocks, experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ExpertsConfig, LatentConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """The heads of the keys ``_mla`` are those before queries meet the keys' matrices."""
    if not keys.has("attention.key_length_mla"):
        raise keys.unsupported(
            "the file keeps matrices of keys and values together, as early conversions did; convert the "
            "model anew"
        )
    latent = _read_latent(keys)
    rope = keys.rope(latent.qk_rope_head_dim, interleaved=True)
    head = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    scale = keys.real("attention.scale", head**-0.5)
    if keys.has("rope.scaling.yarn_log_multiplier"):
        for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
            if keys.real(key, 1.0) != 1.0:
                raise keys.unsupported(f"{key} beside yarn_log_multiplier is not supported")
        scale *= _yarn_factor(rope, keys.positive("rope.scaling.yarn_log_multiplier")) ** 2
        rope = replace(rope, yarn_multiplier=0.0, attention_factor=1.0)
    dims = (latent.cache_dim, latent.kv_lora_rank)
    return ModelConfig(
        **dimensions(keys, latent=dims) | {"attention_scale": scale},
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        latent=latent,
        experts=_read_experts(keys),
    )


def _read_latent(keys: Keys) -> LatentConfig:
    rope = keys.integer("rope.dimension_count")
    rank = keys.integer("attention.kv_lora_rank")
    head = keys.integer("attention.key_length_mla")
    if keys.integer("attention.head_count_kv", 1) != 1 or head <= rope:
        raise keys.fail(f"heads of {head} dims, {rope} of them rotated, are no latent attention")
    return LatentConfig(
        q_lora_rank=keys.count("attention.q_lora_rank"),
        kv_lora_rank=rank,
        qk_nope_head_dim=head - rope,
        qk_rope_head_dim=rope,
        v_head_dim=keys.integer("attention.value_length_mla"),
    )


def _read_experts(keys: Keys) -> ExpertsConfig:
    """V3 ranks a group by its two best experts, V2 by the best."""
    own = experts.read_experts(keys)
    groups, kept = experts.read_groups(keys, own.num_experts, own.num_experts_per_tok)
    scoring = experts.read_scoring(keys, "softmax")
    return replace(
        own,
        first_dense_layers=keys.count("leading_dense_block_count"),
        shared_intermediate_size=keys.count("expert_shared_count") * own.intermediate_size,
        scoring=scoring,
        normalize=keys.flag("expert_weights_norm", False),
        scale=keys.positive("expert_weights_scale", 1.0),
        groups=groups,
        kept_groups=kept,
        best_of_group=2 if scoring == "sigmoid" else 1,
    )


def _yarn_factor(rope: RopeConfig, multiplier: float) -> float:
    """1 + multiplier * ln(factor), by decimals, since libm's logarithm differs between machines."""
    if rope.scaling != "yarn":
        return 1.0
    with localcontext() as context:
        context.prec = 40
        return float(1 + Decimal(multiplier) * Decimal(rope.factor).ln())


def latent_attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """The layer's normed input x through its attention, added to ``residual``."""
    d = c.latent
    assert d is not None
    b, hidden, heads = f"blk.{layer}", c.hidden_size, c.num_attention_heads
    nope, rope = d.qk_nope_head_dim, d.qk_rope_head_dim
    q_width = heads * (nope + rope)
    kv_a = w.matrix(f"{b}.attn_kv_a_mqa", d.cache_dim, hidden)
    if d.q_lora_rank:
        q, kv = g.linear(x, w.matrix(f"{b}.attn_q_a", d.q_lora_rank, hidden), kv_a)
        q = norm(g, c, w, q, f"{b}.attn_q_a_norm")
        (q,) = g.linear(q, w.matrix(f"{b}.attn_q_b", q_width, d.q_lora_rank))
    else:
        q, kv = g.linear(x, w.matrix(f"{b}.attn_q", q_width, hidden), kv_a)
    latent = norm(
        g, c, w, g.select_columns(kv, 0, d.kv_lora_rank, d.cache_dim), f"{b}.attn_kv_a_norm"
    )
    k_rope = g.select_columns(kv, d.kv_lora_rank, rope, d.cache_dim)
    q_rope = g.rope(g.select_columns(q, nope, rope, nope + rope), c.rope, rope)
    q_nope = g.select_columns(q, 0, nope, nope + rope)
    q_latent = g.head_linear(q_nope, w.experts(f"{b}.attn_k_b", heads, d.kv_lora_rank, nope))
    a = g.attention(
        g.join_heads(q_latent, q_rope, heads),
        g.join_heads(latent, g.rope(k_rope, c.rope, rope), 1),
        None,
        layer=layer,
        head_dim=d.cache_dim,
        value_dim=d.kv_lora_rank,
        scale=c.attention_scale,
    )
    v = g.head_linear(a, w.experts(f"{b}.attn_v_b", heads, d.v_head_dim, d.kv_lora_rank))
    return blocks.attention_output(g, c, w, v, layer, add=residual)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    e = experts.experts_of(c)
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        h = latent_attention(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        if i < e.first_dense_layers:
            h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
            continue
        routing = experts.route(g, c, w, x, i, selection_bias=experts.selection_bias(c, w, i))
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
        if e.shared_intermediate_size:
            h = experts.shared_expert(g, c, w, x, i, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
