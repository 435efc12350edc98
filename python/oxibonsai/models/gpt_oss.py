"""gpt-oss: attention with sinks, every other layer within a window; experts with biases."""

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
    """YaRN's ramp begins and ends between pairs, where other models round that to a pair."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=replace(keys.rope(shared["head_dim"]), ramp_of_pairs=False),
        sliding_window=keys.integer("attention.sliding_window"),
        local_layers=keys.local_layers(2),
        experts=experts.read_experts(keys, scoring="softmax_of_chosen", normalize=False),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = g.attention(
            q,
            k,
            v,
            layer=i,
            head_dim=c.head_dim,
            scale=c.attention_scale,
            window=c.sliding_window if c.is_local(i) else 0,
            sinks=w.vector(f"{b}.attn_sinks.weight", c.num_attention_heads),
        )
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"{b}.post_attention_norm")
        routing = experts.route(g, c, w, x, i)
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.clamped_swiglu))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
