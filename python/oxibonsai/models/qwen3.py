"""Qwen3 (every dense Bonsai): q and k are normalised per head before rope."""

from __future__ import annotations

from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.pooled import read_classifier
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Dimensions and constants, of which rope may be YaRN's."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        classifier=read_classifier(keys, default_pooling="last"),
        rope=keys.rope(shared["head_dim"]),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    hidden, ff, eps = c.hidden_size, c.intermediate_size, c.rms_norm_eps
    q_width = c.num_attention_heads * c.head_dim
    kv_width = c.num_key_value_heads * c.head_dim
    h = g.images(g.embed(w.embedding(c)))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = g.rms_norm(h, w.vector(f"{b}.attn_norm.weight", hidden), eps)
        q, k, v = g.linear(
            x,
            w.matrix(f"{b}.attn_q", q_width, hidden),
            w.matrix(f"{b}.attn_k", kv_width, hidden),
            w.matrix(f"{b}.attn_v", kv_width, hidden),
        )
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), eps)
        q = g.rope(q, c.rope, c.head_dim)
        k = g.rope(k, c.rope, c.head_dim)
        a = g.attention(q, k, v, layer=i, head_dim=c.head_dim, scale=c.attention_scale)
        (h,) = g.linear(a, w.matrix(f"{b}.attn_output", hidden, q_width), add=h)
        x = g.rms_norm(h, w.vector(f"{b}.ffn_norm.weight", hidden), eps)
        gate, up = g.linear(
            x, w.matrix(f"{b}.ffn_gate", ff, hidden), w.matrix(f"{b}.ffn_up", ff, hidden)
        )
        (h,) = g.linear(g.swiglu(gate, up), w.matrix(f"{b}.ffn_down", hidden, ff), add=h)
        if i < c.deepstack_layers:  # Qwen3-VL
            h = g.images(h, 1 + i, added=True)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
