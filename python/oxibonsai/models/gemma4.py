"""Gemma 4: heads of two sizes, layers that share keys and values, embeddings for each layer, experts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from oxibonsai.graph import Builder, RopeConfig, Value, Vector
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, norm, varied_dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Heads of the keys ``_swa`` are those of layers with a window; the scale of scores is 1."""
    shared = varied_dimensions(keys)
    dim = shared["head_dim"]
    local_dim = keys.integer("attention.key_length_swa")
    if keys.integer("attention.value_length_swa", local_dim) != local_dim:
        raise keys.unsupported("keys and values of different lengths are not supported")
    rotary = keys.integer("rope.dimension_count_swa", local_dim)
    if rotary % 2 != 0 or rotary > local_dim:
        raise keys.fail(f"{rotary} rotated dims of a head of {local_dim}")
    rope = keys.rope(dim)
    local_rope = RopeConfig(
        rotary,
        keys.theta("rope.freq_base_swa", 10000.0),
        attention_factor=keys.positive("rope.scaling.attn_factor", 1.0),
    )
    local = keys.local_layers(1)
    sharing = read_sharing(keys, local)
    if not all(local) and not keys.checkpoint.has("rope_freqs.weight"):
        # Without it all pairs of a head would be rotated, of which such a layer rotates some.
        raise keys.fail(
            "layers without a window need the tensor rope_freqs.weight, which is missing"
        )
    config = ModelConfig(
        **shared | {"attention_scale": 1.0},
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        rope_local=local_rope,
        local_head_dim=local_dim,
        sliding_window=keys.integer("attention.sliding_window"),
        local_layers=local,
        num_kv_shared_layers=sharing,
        hidden_size_per_layer_input=keys.count("embedding_length_per_layer_input"),
        final_logit_softcapping=keys.real("final_logit_softcapping", 0.0),
    )
    if keys.count("expert_count") == 0:
        return config
    return replace(config, experts=experts.read_experts(keys))


def read_sharing(keys: Keys, local: tuple[bool, ...]) -> int:
    """How many of the last layers use keys and values of earlier ones of the same kind."""
    layers, sharing = len(local), keys.count("attention.shared_kv_layers")
    own = local[: max(layers - sharing, 0)]
    if any(kind not in own for kind in local):
        raise keys.fail(
            f"{sharing} of {layers} layers share keys and values that no other layer has"
        )
    return sharing


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), math.sqrt(c.hidden_size))
    inputs = layer_inputs(g, c, w, h) if c.hidden_size_per_layer_input else None
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x, alone = norm(g, c, w, h, f"{b}.attn_norm"), not w.has(f"{b}.attn_v.weight")
        a = attention(g, c, w, i, x, keys_are_values=alone)
        h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
        x = _mlp(g, c, w, i, norm(g, c, w, h, f"{b}.ffn_norm"))
        if w.has(f"{b}.ffn_gate_inp.weight"):
            x = g.add(norm(g, c, w, x, f"{b}.post_ffw_norm_1"), _mixture(g, c, w, i, h))
        h = g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))
        if inputs is not None:
            h = g.add(h, _layer_input(g, c, w, i, h, inputs))
        if w.has(f"{b}.layer_output_scale.weight"):
            h = g.scale(h, float(w.vector(f"{b}.layer_output_scale.weight", 1)[0]))
    return h


def _mlp(g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value) -> Value:
    ff, b = c.of_layer(layer).intermediate_size, f"blk.{layer}.ffn"
    gate, up = g.linear(
        x, w.matrix(f"{b}_gate", ff, c.hidden_size), w.matrix(f"{b}_up", ff, c.hidden_size)
    )
    (out,) = g.linear(g.geglu(gate, up), w.matrix(f"{b}_down", c.hidden_size, ff))
    return out


def attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, *, keys_are_values: bool = False
) -> Value:
    """Return the layer's attention for its normed input x, maybe over another layer's keys and values."""
    own, b, eps, hidden = c.of_layer(layer), f"blk.{layer}", c.rms_norm_eps, c.hidden_size
    local = c.local_layers[layer]
    dim = c.local_head_dim if local else c.head_dim
    rope = c.rope_local if local and c.rope_local is not None else c.rope
    window = c.sliding_window if local else 0
    q_weight = w.matrix(f"{b}.attn_q", own.num_attention_heads * dim, hidden)
    if layer >= c.num_hidden_layers - c.num_kv_shared_layers:
        (q,) = g.linear(x, q_weight)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
        q = g.rope(q, rope, dim)
        a = g.attend_to(q, layer=shared_layer(c, layer), head_dim=dim, scale=1.0, window=window)
    else:
        weights = [q_weight, w.matrix(f"{b}.attn_k", own.num_key_value_heads * dim, hidden)]
        if not keys_are_values:
            weights.append(w.matrix(f"{b}.attn_v", own.num_key_value_heads * dim, hidden))
        q, k, *other = g.linear(x, *weights)
        v = g.head_norm(other[0] if other else k, _ones(dim), eps)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", dim), eps)
        q, k = g.rope(q, rope, dim), g.rope(k, rope, dim)
        a = g.attention(q, k, v, layer=layer, head_dim=dim, scale=1.0, window=window)
    (out,) = g.linear(a, w.matrix(f"{b}.attn_output", hidden, a.cols))
    return out


def shared_layer(c: ModelConfig, layer: int) -> int:
    """Return the last layer of the same kind that has keys and values of its own."""
    own = range(c.num_hidden_layers - c.num_kv_shared_layers)
    return max(i for i in own if c.local_layers[i] == c.local_layers[layer])


def _ones(size: int) -> Vector:
    return np.ones(size, dtype=np.float32)


def _mixture(g: Builder, c: ModelConfig, w: Weights, layer: int, h: Value) -> Value:
    """Return the experts' output for the hidden states, normalised; their router has a norm of its own."""
    e, b, eps = experts.experts_of(c), f"blk.{layer}", c.rms_norm_eps
    scale = w.vector(f"{b}.ffn_gate_inp.scale", c.hidden_size) / np.float32(
        math.sqrt(c.hidden_size)
    )
    (scores,) = g.linear(
        g.rms_norm(h, scale, eps), w.matrix(f"{b}.ffn_gate_inp", e.num_experts, c.hidden_size)
    )
    routing = g.route(
        scores,
        e.num_experts_per_tok,
        normalize=True,
        expert_scale=w.vector(f"{b}.ffn_down_exps.scale", e.num_experts),
    )
    x = norm(g, c, w, h, f"{b}.pre_ffw_norm_2")
    x = experts.gated_experts(g, c, w, x, layer, routing, g.geglu)
    return norm(g, c, w, x, f"{b}.post_ffw_norm_2")


def layer_inputs(g: Builder, c: ModelConfig, w: Weights, h: Value) -> Value:
    """Return each layer's input from the token and from its embedding: [n, layers * size]."""
    size, layers = c.hidden_size_per_layer_input, c.num_hidden_layers
    table = w.matrix("per_layer_token_embd", c.vocab_size, layers * size)
    tokens = g.scale(g.embed(table), math.sqrt(size))
    (own,) = g.linear(h, w.matrix("per_layer_model_proj", layers * size, c.hidden_size))
    own = g.scale(own, 1.0 / math.sqrt(c.hidden_size))
    own = g.head_norm(own, w.vector("per_layer_proj_norm.weight", size), c.rms_norm_eps)
    return g.scale(g.add(own, tokens), math.sqrt(0.5))


def _layer_input(
    g: Builder, c: ModelConfig, w: Weights, layer: int, h: Value, inputs: Value
) -> Value:
    """Return the value that joins the hidden states after a layer."""
    size, b = c.hidden_size_per_layer_input, f"blk.{layer}"
    (gate,) = g.linear(h, w.matrix(f"{b}.inp_gate", size, c.hidden_size))
    x = g.geglu(gate, g.select_columns(inputs, layer * size, size))
    (x,) = g.linear(x, w.matrix(f"{b}.proj", c.hidden_size, size))
    return norm(g, c, w, x, f"{b}.post_norm")


ARCHITECTURE = Architecture(read_config, hidden_states)
