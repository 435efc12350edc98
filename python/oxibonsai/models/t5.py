"""T5's encoder: biases by bucketed distance in place of positions, RMSNorm before each half."""

from __future__ import annotations

import numpy as np

from oxibonsai.graph import Builder, RopeConfig, Value, Vector
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Distances from here on share a bucket; every published T5 has this number.
_MAX_DISTANCE = 128


def read_config(keys: Keys) -> ModelConfig:
    """Scores are not scaled; the norms' epsilon stands under both names."""
    keys.get("attention.layer_norm_epsilon")
    buckets = keys.integer("attention.relative_buckets_count")
    if buckets % 4 != 0 or not 4 <= buckets // 2 <= _MAX_DISTANCE:
        raise keys.fail(
            f"{buckets} buckets of distances are no multiple of 4 from 8 to {2 * _MAX_DISTANCE}"
        )
    return ModelConfig(
        **{**dimensions(keys), "attention_scale": 1.0},
        causal=keys.causal(False),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("mean"),
        rope=RopeConfig(0, 10000.0),
        relative_buckets=buckets,
    )


def bucket_of(distance: int, buckets: int) -> int:
    """The bucket of a distance, which is that of a key after its query.

    Half of the buckets are for keys after the query. Half of those for each side have a distance of
    their own each, the others ever larger ranges, in equal steps of the logarithm; whole numbers
    decide, so that no rounding can.
    """
    own = buckets // 2
    side, distance = (own if distance > 0 else 0), abs(distance)
    exact = own // 2
    if distance < exact:
        return side + distance
    # The largest k with log(distance / exact) / log(max / exact) * (own - exact) >= k.
    steps = own - exact
    reached = distance**steps
    k = 0
    while k < steps - 1 and reached * exact ** (k + 1) >= _MAX_DISTANCE ** (k + 1) * exact**steps:
        k += 1
    return side + exact + k


def position_bias(c: ModelConfig, w: Weights, name: str) -> Vector:
    """Of each head and distance: [heads, 2 * reach + 1]."""
    table = w.floats(f"{name}.weight", c.relative_buckets, c.num_attention_heads)
    distances = range(-_MAX_DISTANCE, _MAX_DISTANCE + 1)
    buckets = [bucket_of(d, c.relative_buckets) for d in distances]
    return np.ascontiguousarray(table[buckets].T)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last norm: [n, hidden]. All layers share the first one's biases."""
    hidden, ff, width = c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim
    kv = c.num_key_value_heads * c.head_dim
    shared = position_bias(c, w, "enc.blk.0.attn_rel_b")
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"enc.blk.{i}"
        x = g.rms_norm(h, w.vector(f"{b}.attn_norm.weight", hidden), c.rms_norm_eps)
        q, k, v = g.linear(
            x,
            w.matrix(f"{b}.attn_q", width, hidden),
            w.matrix(f"{b}.attn_k", kv, hidden),
            w.matrix(f"{b}.attn_v", kv, hidden),
        )
        own = i > 0 and w.has(f"{b}.attn_rel_b.weight")
        bias = position_bias(c, w, f"{b}.attn_rel_b") if own else shared
        a = g.attend_local(
            q, k, v, head_dim=c.head_dim, scale=c.attention_scale, position_bias=bias
        )
        (h,) = g.linear(a, w.matrix(f"{b}.attn_o", hidden, width), add=h)
        x = g.rms_norm(h, w.vector(f"{b}.ffn_norm.weight", hidden), c.rms_norm_eps)
        up = w.matrix(f"{b}.ffn_up", ff, hidden)
        if w.has(f"{b}.ffn_gate.weight"):  # version 1.1 on
            gate, x = g.linear(x, w.matrix(f"{b}.ffn_gate", ff, hidden), up)
            x = g.geglu(gate, x)
        else:
            x = g.relu(g.linear(x, up)[0])
        (h,) = g.linear(x, w.matrix(f"{b}.ffn_down", hidden, ff), add=h)
    return g.rms_norm(h, w.vector("enc.output_norm.weight", hidden), c.rms_norm_eps)


ENCODER = Architecture(read_config, hidden_states)
