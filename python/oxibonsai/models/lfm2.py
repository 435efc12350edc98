"""LFM2: short convolutions between gates, attention in some layers; experts in LFM2-MoE."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, hybrid_dimensions, norm
from oxibonsai.models.config import CONVOLUTION, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Layers without key-value heads are convolutions."""
    shared = hybrid_dimensions(keys, CONVOLUTION)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        sliding_window=keys.window(),
        conv_kernel=keys.integer("shortconv.l_cache"),
    )


def read_mixed(keys: Keys) -> ModelConfig:
    """Read the configuration of a model with experts in all but the first layers."""
    own = experts.read_experts(keys, scoring=experts.read_scoring(keys, "sigmoid"))
    dense = keys.count("leading_dense_block_count")
    return replace(read_config(keys), experts=replace(own, first_dense_layers=dense))


def _feed_forward(
    g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int, add: Value
) -> Value:
    if c.experts is None or layer < c.experts.first_dense_layers:
        return blocks.gated_mlp(g, c, w, x, layer, g.swiglu, add=add)
    bias = experts.selection_bias(c, w, layer)
    routing = experts.route(g, c, w, x, layer, selection_bias=bias)
    return g.add(add, experts.gated_experts(g, c, w, x, layer, routing, g.swiglu))


def _convolution(g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int, add: Value) -> Value:
    """One third of a projection gates the last before the convolution, another one its result."""
    b, hidden = f"blk.{layer}.shortconv", c.hidden_size
    (parts,) = g.linear(x, w.matrix(f"{b}.in_proj", 3 * hidden, hidden))
    before, after, x = (g.select_columns(parts, i * hidden, hidden) for i in range(3))
    taps = w.floats(f"{b}.conv.weight", hidden, c.conv_kernel)
    x = g.multiply(after, g.conv1d(g.multiply(before, x), taps))
    (h,) = g.linear(x, w.matrix(f"{b}.out_proj", hidden, hidden), add=add)
    return h


def _attention(g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int, add: Value) -> Value:
    b, dim, eps = f"blk.{layer}", c.head_dim, c.rms_norm_eps
    q, k, v = blocks.query_key_value(g, c, w, x, layer)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", dim), eps)
    q, k = g.rope(q, c.rope, dim), g.rope(k, c.rope, dim)
    a = blocks.attention(g, c, q, k, v, c.cached_layer(layer), window=c.sliding_window)
    return blocks.attention_output(g, c, w, a, layer, add=add)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        h = (_attention if c.attends(i) else _convolution)(g, c, w, x, i, h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        h = _feed_forward(g, c, w, x, i, h)
    return h


def final_norm(g: Builder, c: ModelConfig, w: Weights, h: Value) -> Value:
    """Files call it that of the embeddings."""
    return norm(g, c, w, h, "token_embd_norm")


LFM2 = Architecture(read_config, hidden_states, final_norm)
LFM2MOE = Architecture(read_mixed, hidden_states, final_norm)
