"""Phi-3.5 with experts: LayerNorms, biases, LongRoPE, two experts chosen one after the other."""

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
    """Return the key of the epsilon is that of RMSNorms, though they are none."""
    shared = dimensions(keys)
    own = experts.read_experts(keys, scoring="sparse_mixer", ff=shared["intermediate_size"])
    if own.num_experts_per_tok != 2:
        raise keys.unsupported(f"{own.num_experts_per_tok} experts of a token, where two are known")
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=0.0,
        layer_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        sliding_window=keys.window(),
        experts=replace(own, normalize=False),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i, window=c.sliding_window)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        routing = experts.route(g, c, w, x, i)
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
