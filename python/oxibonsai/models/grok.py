"""Grok 1 and 2: norms around both halves, capped scores, GELU experts, in Grok 2 beside a dense part."""

from __future__ import annotations

import math

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Early files have no factors: they are Grok 1's."""
    shared = dimensions(keys)
    scale = keys.positive("attention.output_scale", 0.08838834764831845)
    if keys.has("attention.temperature_length"):
        raise keys.unsupported("Grok with queries that grow with the text is not supported")
    # The routers of published models stay far below their cap, and no implementation applies it.
    keys.real("router_logit_softcapping", 30.0)
    return ModelConfig(
        **shared | {"attention_scale": scale},
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        attn_logit_softcapping=keys.real("attn_logit_softcapping", 30.0),
        final_logit_softcapping=keys.real("final_logit_softcapping", 0.0),
        embedding_scale=keys.positive("embedding_scale", 78.38367176906169),
        logit_scale=keys.positive("logit_scale", 0.5773502691896257),
        experts=experts.read_experts(keys, ff=shared["intermediate_size"]),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), c.embedding_scale)
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, norm(g, c, w, a, f"{b}.attn_output_norm"))
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        routing = experts.route(g, c, w, x, i)
        mixed = experts.gated_experts(g, c, w, x, i, routing, g.geglu)
        if w.has(f"{b}.ffn_up.weight"):
            dense = blocks.gated_mlp(g, c, w, x, i, g.geglu)
            mixed = g.scale(g.add(dense, mixed), math.sqrt(0.5))
        after = "layer_output_norm" if w.has(f"{b}.layer_output_norm.weight") else "post_ffw_norm"
        h = g.add(h, norm(g, c, w, mixed, f"{b}.{after}"))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
