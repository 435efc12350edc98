"""DeepSeek V2 and V3, Kimi K2, Mistral 4: latent attention, then experts in groups."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ExpertsConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.latent import latent_attention, read_latent, yarn_factor
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """YaRN's growth of cos and sin becomes a factor of the scores.

    The last layers of a file may predict further tokens; they are no part of the pass.
    """
    latent, head = read_latent(keys)
    rope = keys.rope(latent.qk_rope_head_dim, interleaved=True)
    scale = keys.real("attention.scale", head**-0.5)
    if keys.has("rope.scaling.yarn_log_multiplier"):
        for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
            if keys.real(key, 1.0) != 1.0:
                raise keys.unsupported(f"{key} beside yarn_log_multiplier is not supported")
        scale *= yarn_factor(rope, keys.positive("rope.scaling.yarn_log_multiplier")) ** 2
        rope = replace(rope, yarn_multiplier=0.0, attention_factor=1.0)
    shared = dimensions(keys, head_dim=latent.cache_dim, kv_heads=1)
    drafting = keys.drafting_layers(shared["num_hidden_layers"])
    layers = shared["num_hidden_layers"] - drafting
    return ModelConfig(
        **shared | {"attention_scale": scale, "num_hidden_layers": layers},
        num_nextn_predict_layers=drafting,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        latent=latent,
        experts=_read_experts(keys),
    )


def read_mistral4(keys: Keys) -> ModelConfig:
    """Read the configuration; queries grow with the context, groups rank by their two best experts."""
    config = read_config(keys)
    own = experts.experts_of(config)
    config = replace(
        config, experts=replace(own, best_of_group=min(2, own.num_experts // own.groups))
    )
    scale = keys.real("attention.temperature_scale", 0.0)
    if scale == 0.0:
        return config
    step = keys.integer("rope.scaling.original_context_length")
    step = keys.integer("attention.temperature_length", step)
    growth = replace(config.rope, temperature=scale, temperature_step=step)
    return replace(config, rope_query=growth)


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


def layer_states(g: Builder, c: ModelConfig, w: Weights, i: int, h: Value) -> Value:
    """Hidden states after layer i: [n, hidden]."""
    e = experts.experts_of(c)
    h = latent_attention(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), add=h)
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    if i < e.first_dense_layers:
        return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    routing = experts.route(g, c, w, x, i, selection_bias=experts.selection_bias(c, w, i))
    h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
    if e.shared_intermediate_size:
        h = experts.shared_expert(g, c, w, x, i, add=h)
    return h


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        h = layer_states(g, c, w, i, h)
    w.leave_out_drafting(c)
    return h


DEEPSEEK2 = Architecture(read_config, hidden_states, drafting_layer=layer_states)
MISTRAL4 = Architecture(read_mistral4, hidden_states, drafting_layer=layer_states)
