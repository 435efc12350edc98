"""Qwen3.5 (Bonsai 27B): gated delta rules, and every few layers attention with an output gate."""

from __future__ import annotations

from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.gated_delta import linear_attention, read_gated_delta, read_layer_types
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys, ff: int | None = None) -> ModelConfig:
    """Return the last layers of a file may predict further tokens; they are no part of the pass.

    Args:
        keys: Of the file.
        ff: The feed-forward length; None: what the file says.
    """
    shared = dimensions(keys, ff=ff)
    drafting = keys.drafting_layers(shared["num_hidden_layers"])
    layers = shared["num_hidden_layers"] - drafting
    rope = keys.multimodal_rope(shared["head_dim"], interleaved_sections=True)
    return ModelConfig(
        **shared | {"num_hidden_layers": layers},
        num_nextn_predict_layers=drafting,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        layer_types=read_layer_types(keys, layers),
        gated_delta=read_gated_delta(keys),
    )


def gated_attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Return the layer's normed input x through its attention, added to ``residual``.

    The projection of a query gives the head's query, then the gate of its result.
    """
    b = f"blk.{layer}"
    hidden, dim, eps = c.hidden_size, c.head_dim, c.rms_norm_eps
    q_width, kv_width = c.num_attention_heads * dim, c.num_key_value_heads * dim
    both, k, v = g.linear(
        x,
        w.matrix(f"{b}.attn_q", 2 * q_width, hidden),
        w.matrix(f"{b}.attn_k", kv_width, hidden),
        w.matrix(f"{b}.attn_v", kv_width, hidden),
    )
    q = g.select_columns(both, 0, dim, 2 * dim)
    gate = g.select_columns(both, dim, dim, 2 * dim)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", dim), eps)
    q, k = g.rope(q, c.rope, dim), g.rope(k, c.rope, dim)
    a = g.attention(q, k, v, layer=c.cached_layer(layer), head_dim=dim, scale=c.attention_scale)
    a = g.sigmoid_gate(gate, a)
    (h,) = g.linear(a, w.matrix(f"{b}.attn_output", hidden, q_width), add=residual)
    return h


def _feed_forward(g: Builder, c: ModelConfig, w: Weights, i: int, h: Value) -> Value:
    hidden, ff, b = c.hidden_size, c.intermediate_size, f"blk.{i}"
    x = g.rms_norm(h, w.vector(f"{b}.post_attention_norm.weight", hidden), c.rms_norm_eps)
    gate, up = g.linear(
        x, w.matrix(f"{b}.ffn_gate", ff, hidden), w.matrix(f"{b}.ffn_up", ff, hidden)
    )
    (h,) = g.linear(g.swiglu(gate, up), w.matrix(f"{b}.ffn_down", hidden, ff), add=h)
    return h


def drafting_layer(g: Builder, c: ModelConfig, w: Weights, i: int, h: Value) -> Value:
    """Return a layer that predicts further tokens attends."""
    x = g.rms_norm(h, w.vector(f"blk.{i}.attn_norm.weight", c.hidden_size), c.rms_norm_eps)
    return _feed_forward(g, c, w, i, gated_attention(g, c, w, i, x, h))


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.images(g.embed(w.embedding(c)))
    for i in range(c.num_hidden_layers):
        x = g.rms_norm(h, w.vector(f"blk.{i}.attn_norm.weight", c.hidden_size), c.rms_norm_eps)
        mix = gated_attention if c.attends(i) else linear_attention
        h = _feed_forward(g, c, w, i, mix(g, c, w, i, x, h))
    w.leave_out_drafting(c)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states, drafting_layer=drafting_layer)
