"""T5: biases by bucketed distance in place of positions, RMSNorm before each part of a layer.

The encoder alone (``t5encoder``), or with a decoder whose layers attend to it (``t5``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.graph import Builder, RopeConfig, Value, Vector
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import DecoderConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Distances from here on share a bucket; every published T5 has this number.
_MAX_DISTANCE = 128


def _shared(keys: Keys) -> dict[str, Any]:
    """Scores are not scaled; the norms' epsilon stands under both names."""
    keys.get("attention.layer_norm_epsilon")
    buckets = keys.integer("attention.relative_buckets_count")
    if buckets % 4 != 0 or not 4 <= buckets // 2 <= _MAX_DISTANCE:
        raise keys.fail(
            f"{buckets} buckets of distances are no multiple of 4 from 8 to {2 * _MAX_DISTANCE}"
        )
    return {
        **dimensions(keys),
        "attention_scale": 1.0,
        "rms_norm_eps": keys.real("attention.layer_norm_rms_epsilon"),
        "rope": RopeConfig(0, 10000.0),
        "relative_buckets": buckets,
    }


def read_encoder_config(keys: Keys) -> ModelConfig:
    """Read the configuration of an encoder alone."""
    return ModelConfig(**_shared(keys), causal=keys.causal(False), pooling=keys.pooling("mean"))


def read_config(keys: Keys) -> ModelConfig:
    """Read the configuration of an encoder with a decoder."""
    shared = _shared(keys)
    layers = keys.integer("decoder_block_count", shared["num_hidden_layers"])
    if layers > len(keys.checkpoint.tensor_names):
        raise keys.fail(f"{keys.architecture}.decoder_block_count is {layers}, more than tensors")
    start = keys.count("decoder_start_token_id")
    if start >= shared["vocab_size"]:
        raise keys.fail(f"{keys.architecture}.decoder_start_token_id is {start}, no token")
    # A model with one table for input and output was trained with scaled outputs.
    tied = not keys.checkpoint.has("output.weight")
    return ModelConfig(
        **{**shared, "max_position_embeddings": 2 * shared["max_position_embeddings"]},
        logit_scale=shared["hidden_size"] ** -0.5 if tied else 1.0,
        decoder=DecoderConfig(layers, start),
    )


def bucket_of(distance: int, buckets: int) -> int:
    """Return the bucket of a distance, which is that of a key after its query, in an encoder.

    Half of the buckets are for keys after the query, the others as in a decoder.
    """
    own = buckets // 2
    return (own if distance > 0 else 0) + _bucket_of_size(abs(distance), own)


def causal_bucket_of(distance: int, buckets: int) -> int:
    """Return the bucket of a distance in a decoder, where no key is after its query."""
    return _bucket_of_size(max(-distance, 0), buckets)


def _bucket_of_size(distance: int, buckets: int) -> int:
    """Return the bucket of a distance.

    Half of the buckets have a distance of their own each, the others ever larger ranges, in equal steps
    of the logarithm; whole numbers decide, so that no rounding can.
    """
    exact = buckets // 2
    if distance < exact:
        return distance
    # The largest k with log(distance / exact) / log(max / exact) * (buckets - exact) >= k.
    steps = buckets - exact
    reached = distance**steps
    k = 0
    while k < steps - 1 and reached * exact ** (k + 1) >= _MAX_DISTANCE ** (k + 1) * exact**steps:
        k += 1
    return exact + k


def position_bias(c: ModelConfig, w: Weights, name: str) -> Vector:
    """Return the bias of each head and distance: [heads, 2 * reach + 1]."""
    table = w.floats(f"{name}.weight", c.relative_buckets, c.num_attention_heads)
    bucket = causal_bucket_of if name.startswith("dec.") else bucket_of
    distances = range(-_MAX_DISTANCE, _MAX_DISTANCE + 1)
    return np.ascontiguousarray(table[[bucket(d, c.relative_buckets) for d in distances]].T)


def _layer_bias(c: ModelConfig, w: Weights, side: str, layer: int) -> Vector:
    """Return the bias of a layer with a table of its own; the others share the first one's."""
    own = w.has(f"{side}.blk.{layer}.attn_rel_b.weight")
    return position_bias(c, w, f"{side}.blk.{layer if own else 0}.attn_rel_b")


def _norm(g: Builder, c: ModelConfig, w: Weights, x: Value, name: str) -> Value:
    return g.rms_norm(x, w.vector(f"{name}.weight", c.hidden_size), c.rms_norm_eps)


def _key_value(
    g: Builder, c: ModelConfig, w: Weights, x: Value, prefix: str
) -> tuple[Value, Value]:
    kv, hidden = c.num_key_value_heads * c.head_dim, c.hidden_size
    k, v = g.linear(x, w.matrix(f"{prefix}_k", kv, hidden), w.matrix(f"{prefix}_v", kv, hidden))
    return k, v


def _query(g: Builder, c: ModelConfig, w: Weights, x: Value, prefix: str) -> Value:
    width = c.num_attention_heads * c.head_dim
    return g.linear(x, w.matrix(f"{prefix}_q", width, c.hidden_size))[0]


def _output(g: Builder, c: ModelConfig, w: Weights, a: Value, prefix: str, add: Value) -> Value:
    return g.linear(a, w.matrix(f"{prefix}_o", c.hidden_size, a.cols), add=add)[0]


def _feed_forward(g: Builder, c: ModelConfig, w: Weights, h: Value, b: str) -> Value:
    """Return h with what the feed-forward part adds."""
    hidden, ff = c.hidden_size, c.intermediate_size
    x = _norm(g, c, w, h, f"{b}.ffn_norm")
    up = w.matrix(f"{b}.ffn_up", ff, hidden)
    if w.has(f"{b}.ffn_gate.weight"):  # version 1.1 on
        gate, x = g.linear(x, w.matrix(f"{b}.ffn_gate", ff, hidden), up)
        x = g.geglu(gate, x)
    else:
        x = g.relu(g.linear(x, up)[0])
    (h,) = g.linear(x, w.matrix(f"{b}.ffn_down", hidden, ff), add=h)
    return h


def encoder_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states of the encoder after its last norm: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"enc.blk.{i}"
        x = _norm(g, c, w, h, f"{b}.attn_norm")
        q, (k, v) = _query(g, c, w, x, f"{b}.attn"), _key_value(g, c, w, x, f"{b}.attn")
        a = g.attend_local(
            q,
            k,
            v,
            head_dim=c.head_dim,
            scale=c.attention_scale,
            position_bias=_layer_bias(c, w, "enc", i),
        )
        h = _output(g, c, w, a, f"{b}.attn", h)
        h = _feed_forward(g, c, w, h, b)
    return _norm(g, c, w, h, "enc.output_norm")


def _paged_layers(g: Builder, c: ModelConfig) -> tuple[list[int], list[int]]:
    """Layers of the cache, declared by both passes: of self-attention, and of cross-attention."""
    assert c.decoder is not None
    layers = range(c.decoder.num_layers)
    own = [g.add_paged_layer(c.num_key_value_heads, c.head_dim) for _ in layers]
    return own, [g.add_paged_layer(c.num_key_value_heads, c.head_dim) for _ in layers]


def encode(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the encoder's states, of which each layer of the decoder has keys and values of its own."""
    _, cross = _paged_layers(g, c)
    h = encoder_states(g, c, w)
    for i, layer in enumerate(cross):
        g.store_kv(*_key_value(g, c, w, h, f"dec.blk.{i}.cross_attn"), layer)
    return h


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the decoder's last layer: [n, hidden]."""
    own, cross = _paged_layers(g, c)
    h = g.embed(w.embedding(c))
    for i, (own_layer, cross_layer) in enumerate(zip(own, cross, strict=True)):
        b = f"dec.blk.{i}"
        w.leave_out(f"{b}.cross_attn_rel_b.")  # nobody reads it
        x = _norm(g, c, w, h, f"{b}.attn_norm")
        g.store_kv(*_key_value(g, c, w, x, f"{b}.attn"), own_layer)
        a = g.attend_to(
            _query(g, c, w, x, f"{b}.attn"),
            layer=own_layer,
            head_dim=c.head_dim,
            scale=c.attention_scale,
            position_bias=_layer_bias(c, w, "dec", i),
            part="own",
        )
        h = _output(g, c, w, a, f"{b}.attn", h)
        x = _norm(g, c, w, h, f"{b}.cross_attn_norm")
        a = g.attend_to(
            _query(g, c, w, x, f"{b}.cross_attn"),
            layer=cross_layer,
            head_dim=c.head_dim,
            scale=c.attention_scale,
            part="encoded",
        )
        h = _output(g, c, w, a, f"{b}.cross_attn", h)
        h = _feed_forward(g, c, w, h, b)
    return h


def final_norm(g: Builder, c: ModelConfig, w: Weights, h: Value) -> Value:
    """Return the norm before the output matrix."""
    return _norm(g, c, w, h, "dec.output_norm")


ENCODER = Architecture(read_encoder_config, encoder_states)
T5 = Architecture(read_config, hidden_states, final_norm, encode=encode)
