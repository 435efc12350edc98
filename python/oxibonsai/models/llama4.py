"""Llama 4: attention within chunks, every few layers over all without positions; experts between.

An expert reads its input times its score, so that the score acts before the activation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ExpertsConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Where a file does not say: all published models have chunks of so many tokens, and queries that grow
# at multiples of it.
_CHUNK, _GROWTH = 8192, 0.1
_PERIOD = 4  # the last layer of each sees all
# The model with so many experts has no norms of queries and keys; no key says it.
_EXPERTS_WITHOUT_NORMS = 128


def read_config(keys: Keys) -> ModelConfig:
    """Return a window of 0 says that all layers see all, with positions."""
    shared = dimensions(keys)
    dim, layers = shared["head_dim"], shared["num_hidden_layers"]
    rope = keys.rope(dim, interleaved=True)
    everywhere = keys.is_zero("attention.sliding_window")
    chunk = _CHUNK if everywhere else keys.integer("attention.sliding_window", _CHUNK)
    local = (True,) * layers if everywhere else keys.local_layers(_PERIOD)
    growth = replace(
        rope,
        temperature=keys.real("attention.temperature_scale", _GROWTH),
        temperature_step=keys.integer("attention.temperature_length", _CHUNK),
        temperature_offset=1,
    )
    own = _read_experts(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        rope_query=growth,
        attention_chunk_size=0 if everywhere else chunk,
        local_layers=local,
        use_qk_norm=own.num_experts != _EXPERTS_WITHOUT_NORMS,
        experts=own,
    )


def _read_experts(keys: Keys) -> ExpertsConfig:
    own = experts.read_experts(keys, scoring="sigmoid", normalize=False)
    return replace(
        own,
        shared_intermediate_size=own.intermediate_size,
        layer_step=keys.integer("interleave_moe_layer_step"),
        scale=keys.positive("expert_weights_scale", 1.0),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    e = experts.experts_of(c)
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        h = _attention(g, c, w, i, x, h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        if (i + 1) % e.layer_step != 0:
            h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
            continue
        routing = experts.route(g, c, w, x, i)
        mixed = experts.gated_experts(g, c, w, x, i, routing, g.swiglu, weigh_inputs=True)
        h = experts.shared_expert(g, c, w, x, i, add=g.add(h, mixed))
    return h


def _attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    local, dim = c.local_layers[layer], c.head_dim
    q, k, v = blocks.query_key_value(g, c, w, x, layer)
    if local:
        q, k = g.rope(q, c.rope, dim), g.rope(k, c.rope, dim)
    else:
        assert c.rope_query is not None
        q = g.temper(q, c.rope_query, dim)
    if local and c.use_qk_norm:
        ones = np.ones(dim, dtype=np.float32)
        q, k = g.head_norm(q, ones, c.rms_norm_eps), g.head_norm(k, ones, c.rms_norm_eps)
    chunk = c.attention_chunk_size if local else 0
    a = g.attention(q, k, v, layer=layer, head_dim=dim, scale=c.attention_scale, chunk=chunk)
    return blocks.attention_output(g, c, w, a, layer, add=residual)


ARCHITECTURE = Architecture(read_config, hidden_states)
