"""Gemma 3n: several streams of hidden states, of which one goes through a layer (AltUp).

It also has low-rank residuals (LAuReL), and, as Gemma 4 does, shared keys and values and embeddings for
each layer.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, norm, varied_dimensions
from oxibonsai.models.config import ModelConfig, StreamsConfig
from oxibonsai.models.gemma4 import attention, layer_inputs, read_sharing
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

_FLOOR = 1e-5  # of the mean square of a stream
_PERIOD = 5  # the last layer of each sees all, where a file does not say


def read_config(keys: Keys) -> ModelConfig:
    """Return the scale of the scores is 1; local layers have a rotary embedding of their own."""
    shared = varied_dimensions(keys)
    layers, rope = shared["num_hidden_layers"], keys.rope(shared["head_dim"])
    local = keys.local_layers(_PERIOD)
    streams = keys.integer("altup.num_inputs")
    active = keys.count("altup.active_idx")
    if keys.checkpoint.shape("blk.0.altup_router.weight")[:1] != (streams,):
        raise keys.fail(f"altup.num_inputs is {streams}, but blk.0.altup_router.weight has others")
    if active >= streams:
        raise keys.fail(f"altup.active_idx is {active} of {streams} streams")
    return ModelConfig(
        **shared | {"attention_scale": 1.0},
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        rope_local=RopeConfig(rope.rotary_dim, keys.theta("rope.freq_base_swa", 10000.0)),
        local_head_dim=shared["head_dim"],
        sliding_window=keys.integer("attention.sliding_window"),
        local_layers=local,
        num_kv_shared_layers=read_sharing(keys, local),
        hidden_size_per_layer_input=keys.integer("embedding_length_per_layer_input"),
        streams=StreamsConfig(streams, active, _sparsity(keys, layers)),
        final_logit_softcapping=keys.real("final_logit_softcapping", 0.0),
    )


def _sparsity(keys: Keys, layers: int) -> tuple[float, ...]:
    """Return for each layer how many deviations above their mean gates must be; minus infinity: any."""
    found = keys.get("activation_sparsity_scale")
    values = found.tolist() if isinstance(found, np.ndarray) else found
    numbers = isinstance(values, list) and all(isinstance(v, float) for v in values)
    if not numbers or len(values) != layers or any(not v < math.inf for v in values):
        raise keys.fail(f"activation_sparsity_scale does not list {layers} numbers")
    return tuple(values)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), math.sqrt(c.hidden_size))
    inputs = layer_inputs(g, c, w, h)
    count = _streams(c).count
    spread = _join(g, [h] * (count - 1))
    streams = [h, *_projected(g, c, w, "altup_proj", spread, like=h)]
    for i in range(c.num_hidden_layers):
        streams = _layer(g, c, w, i, streams, inputs)
    first, *others = streams
    others = _projected(g, c, w, "altup_unembd_proj", _join(g, others), like=first)
    return g.scale(reduce(g.add, others, first), 1.0 / count)


def _streams(c: ModelConfig) -> StreamsConfig:
    assert c.streams is not None
    return c.streams


def _join(g: Builder, parts: list[Value]) -> Value:
    """One wide row of several."""
    return reduce(lambda a, b: g.join_heads(a, b, 1), parts)


def _projected(
    g: Builder, c: ModelConfig, w: Weights, name: str, x: Value, *, like: Value
) -> list[Value]:
    """Streams but the first, each times a matrix of its own and as large as ``like``."""
    hidden, count = c.hidden_size, _streams(c).count - 1
    x = g.head_linear(x, w.experts(name, count, hidden, hidden))
    parts = [g.select_columns(x, i * hidden, hidden) for i in range(count)]
    return [g.match_rms(part, like, _FLOOR) for part in parts]


def _layer(
    g: Builder, c: ModelConfig, w: Weights, layer: int, streams: list[Value], inputs: Value
) -> list[Value]:
    b, hidden, s = f"blk.{layer}", c.hidden_size, _streams(c)
    # What the layer is expected to make of the streams, then what its one stream shows of that.
    joined = _join(g, streams)
    weights = w.matrix(f"{b}.altup_predict_coef", s.count * s.count, s.count)
    (mix,) = g.linear(_modalities(g, c, w, layer, streams[s.active]), weights)
    predicted = g.add(g.mix_parts(joined, mix, s.count), joined)
    active = g.select_columns(predicted, s.active * hidden, hidden)
    activated = _active_layer(g, c, w, layer, active)
    innovation = g.add(activated, g.scale(active, -1.0))
    weights = w.matrix(f"{b}.altup_correct_coef", s.count, s.count)
    (mix,) = g.linear(_modalities(g, c, w, layer, activated), weights)
    mix = g.add_vector(mix, np.ones(s.count, dtype=np.float32))
    corrected = g.add(g.mix_parts(innovation, mix, 1), predicted)
    first, *others = (g.select_columns(corrected, i * hidden, hidden) for i in range(s.count))
    x = [first, *others][s.active]
    x = g.multiply_vector(x, w.vector(f"{b}.altup_correct_scale.weight", hidden))
    size = c.hidden_size_per_layer_input
    (gate,) = g.linear(x, w.matrix(f"{b}.inp_gate", size, hidden))
    x = g.geglu(gate, g.select_columns(inputs, layer * size, size))
    (x,) = g.linear(x, w.matrix(f"{b}.proj", hidden, size))
    x = norm(g, c, w, x, f"{b}.post_norm")
    return [first, *(g.add(other, x) for other in others)]


def _modalities(g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value) -> Value:
    """Return the inputs of the weights of the streams: [n, streams]."""
    b, hidden = f"blk.{layer}", c.hidden_size
    scale = w.vector(f"{b}.altup_router_norm.weight", hidden) / np.float32(hidden)
    x = g.rms_norm(x, scale, c.rms_norm_eps)
    (x,) = g.linear(x, w.matrix(f"{b}.altup_router", _streams(c).count, hidden))
    return g.softcap(x, 1.0)  # tanh


def _active_layer(g: Builder, c: ModelConfig, w: Weights, layer: int, h: Value) -> Value:
    b = f"blk.{layer}"
    x = norm(g, c, w, h, f"{b}.attn_norm")
    rank = w.shape(f"{b}.laurel_l.weight")[0]
    (low,) = g.linear(x, w.matrix(f"{b}.laurel_l", rank, c.hidden_size))
    (low,) = g.linear(low, w.matrix(f"{b}.laurel_r", c.hidden_size, rank))
    laurel = g.add(x, norm(g, c, w, low, f"{b}.laurel_post_norm"))
    a = norm(g, c, w, attention(g, c, w, layer, x), f"{b}.post_attention_norm")
    h = g.scale(g.add(g.add(h, a), laurel), math.sqrt(0.5))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    ff, sparsity = c.of_layer(layer).intermediate_size, _streams(c).sparsity[layer]
    gate, up = g.linear(
        x, w.matrix(f"{b}.ffn_gate", ff, c.hidden_size), w.matrix(f"{b}.ffn_up", ff, c.hidden_size)
    )
    if sparsity > -math.inf:
        gate = g.gaussian_top_k(gate, sparsity)
    (x,) = g.linear(g.geglu(gate, up), w.matrix(f"{b}.ffn_down", c.hidden_size, ff))
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


ARCHITECTURE = Architecture(read_config, hidden_states)
