"""Gemma 3 (text): local and global layers with two rope bases, norms before and after each half."""

from __future__ import annotations

import math
from collections.abc import Callable

from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Where a file does not say: llama.cpp's base for local layers; five of those, then a global one.
_LOCAL_THETA = 10000.0
_PATTERN = 6


# Attention of a layer: q, k, v, the layer, its window (0: none).
Attend = Callable[[Value, Value, Value, int, int], Value]


def read_config(keys: Keys, *, causal: bool = True) -> ModelConfig:
    """Local layers have a window and a rotary embedding of their own."""
    shared = dimensions(keys)
    rope = keys.rope(shared["head_dim"])
    return ModelConfig(
        **shared,
        causal=keys.causal(causal),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last" if causal else "mean"),
        rope=rope,
        rope_local=RopeConfig(
            rope.rotary_dim,
            keys.theta("rope.freq_base_swa", _LOCAL_THETA),
            attention_factor=keys.positive("rope.scaling.attn_factor", 1.0),
        ),
        sliding_window=keys.window(),
        sliding_window_pattern=keys.integer("attention.sliding_window_pattern", _PATTERN),
        attn_logit_softcapping=keys.real("attn_logit_softcapping", 0.0),
        final_logit_softcapping=keys.real("final_logit_softcapping", 0.0),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""

    def attend(q: Value, k: Value, v: Value, layer: int, window: int) -> Value:
        return g.attention(
            q,
            k,
            v,
            layer=layer,
            head_dim=c.head_dim,
            scale=c.attention_scale,
            window=window,
            softcap=c.attn_logit_softcapping,
        )

    return layers(g, c, w, attend)


def layers(g: Builder, c: ModelConfig, w: Weights, attend: Attend) -> Value:
    """All layers with an attention of the caller's. Norm weights in the file hold 1 + w."""
    hidden, ff, eps = c.hidden_size, c.intermediate_size, c.rms_norm_eps
    q_width = c.num_attention_heads * c.head_dim
    kv_width = c.num_key_value_heads * c.head_dim
    h = g.images(g.scale(g.embed(w.embedding(c)), math.sqrt(hidden)))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        local = c.is_local(i)
        rope = c.rope_local if local and c.rope_local is not None else c.rope
        x = g.rms_norm(h, w.vector(f"{b}.attn_norm.weight", hidden), eps)
        q, k, v = g.linear(
            x,
            w.matrix(f"{b}.attn_q", q_width, hidden),
            w.matrix(f"{b}.attn_k", kv_width, hidden),
            w.matrix(f"{b}.attn_v", kv_width, hidden),
        )
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), eps)
        q = g.rope(q, rope, c.head_dim)
        k = g.rope(k, rope, c.head_dim)
        a = attend(q, k, v, i, c.sliding_window if local else 0)
        (a,) = g.linear(a, w.matrix(f"{b}.attn_output", hidden, q_width))
        h = g.add(h, g.rms_norm(a, w.vector(f"{b}.post_attention_norm.weight", hidden), eps))
        x = g.rms_norm(h, w.vector(f"{b}.ffn_norm.weight", hidden), eps)
        gate, up = g.linear(
            x, w.matrix(f"{b}.ffn_gate", ff, hidden), w.matrix(f"{b}.ffn_up", ff, hidden)
        )
        (x,) = g.linear(g.geglu(gate, up), w.matrix(f"{b}.ffn_down", hidden, ff))
        h = g.add(h, g.rms_norm(x, w.vector(f"{b}.post_ffw_norm.weight", hidden), eps))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
