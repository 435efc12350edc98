"""GLM 4.5 to 4.7: a few dense layers, then sigmoid routing beside a shared expert."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return the last layers of a file may predict further tokens; they are no part of the pass."""
    shared = dimensions(keys)
    drafting = keys.drafting_layers(shared["num_hidden_layers"])
    layers = shared["num_hidden_layers"] - drafting
    own = experts.read_experts(keys)
    groups, kept = experts.read_groups(keys, own.num_experts, own.num_experts_per_tok)
    own = replace(
        own,
        first_dense_layers=keys.count("leading_dense_block_count"),
        shared_intermediate_size=keys.count("expert_shared_count") * own.intermediate_size,
        scoring=experts.read_scoring(keys, "sigmoid"),
        normalize=keys.flag("expert_weights_norm", False),
        scale=keys.positive("expert_weights_scale", 1.0),
        groups=groups,
        kept_groups=kept,
        best_of_group=2,
    )
    return ModelConfig(
        **shared | {"num_hidden_layers": layers},
        num_nextn_predict_layers=drafting,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        experts=own,
    )


def layer_states(g: Builder, c: ModelConfig, w: Weights, i: int, h: Value) -> Value:
    """Hidden states after layer i: [n, hidden]."""
    e, b = experts.experts_of(c), f"blk.{i}"
    x = norm(g, c, w, h, f"{b}.attn_norm")
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    if w.has(f"{b}.attn_q_norm.weight"):
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), c.rms_norm_eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), c.rms_norm_eps)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = blocks.attention(g, c, q, k, v, i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = norm(g, c, w, h, f"{b}.post_attention_norm")
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


ARCHITECTURE = Architecture(read_config, hidden_states, drafting_layer=layer_states)
