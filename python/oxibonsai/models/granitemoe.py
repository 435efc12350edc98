"""Granite 3 with experts: factors on embeddings, residuals and logits; a shared expert in some."""

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
    """Return the logits are divided by ``logit_scale``."""
    shared = dimensions(keys)
    own = experts.read_experts(keys, ff=shared["intermediate_size"])
    width = keys.count("expert_shared_feed_forward_length")
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=True),
        logit_scale=1.0 / keys.positive("logit_scale"),
        embedding_scale=keys.positive("embedding_scale", 1.0),
        residual_scale=keys.positive("residual_scale", 1.0),
        experts=replace(own, shared_intermediate_size=width),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    shared = experts.experts_of(c).shared_intermediate_size > 0
    h = g.scale(g.embed(w.embedding(c)), c.embedding_scale)
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, g.scale(a, c.residual_scale))
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        routing = experts.route(g, c, w, x, i)
        y = experts.gated_experts(g, c, w, x, i, routing, g.swiglu)
        if shared:
            y = experts.shared_expert(g, c, w, x, i, add=y)
        h = g.add(h, g.scale(y, c.residual_scale))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
