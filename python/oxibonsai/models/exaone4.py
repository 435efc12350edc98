"""EXAONE 4: norms after each half only; where some layers see a window, only those are rotated."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

_LAYERS_OF_32B = 64  # its early files have no key for the layers with a window


def read_config(keys: Keys) -> ModelConfig:
    """Return the small model has no windows: all of its layers are rotated."""
    shared = dimensions(keys)
    large = shared["num_hidden_layers"] == _LAYERS_OF_32B
    window = keys.integer("attention.sliding_window", 4096) if large else keys.window()
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        sliding_window=window,
        local_layers=keys.local_layers(4) if window else (),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        q, k, v = blocks.query_key_value(g, c, w, h, i)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), c.rms_norm_eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), c.rms_norm_eps)
        local = c.is_local(i)
        if local or c.sliding_window == 0:
            q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i, window=c.sliding_window if local else 0)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
        x = blocks.gated_mlp(g, c, w, h, i, g.swiglu)
        h = g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
