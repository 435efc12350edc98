"""OLMo: norms without weights, q, k and v within bounds."""

from __future__ import annotations

import numpy as np

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Neighbours are rotated."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=0.0,
        layer_norm_eps=keys.positive("attention.layer_norm_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=True),
        clamp_kqv=keys.positive("attention.clamp_kqv") if keys.has("attention.clamp_kqv") else 0.0,
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        q, k, v = blocks.query_key_value(g, c, w, _norm(g, c, w, h), i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        h = blocks.gated_mlp(g, c, w, _norm(g, c, w, h), i, g.swiglu, add=h)
    return h


def _norm(g: Builder, c: ModelConfig, w: Weights, x: Value) -> Value:
    """LayerNorm without a weight, of every half and before the output matrix."""
    return g.layer_norm(x, np.ones(x.cols, dtype=np.float32), None, c.layer_norm_eps)


ARCHITECTURE = Architecture(read_config, hidden_states, final_norm=_norm)
