"""MPT: linear biases for positions, q, k and v within bounds, norms without biases."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return a model without linear biases has learned positions, which transformers never had."""
    if keys.real("attention.max_alibi_bias") <= 0.0:
        raise keys.unsupported("MPT with learned positions is not supported")
    return ModelConfig(
        **dimensions(keys),
        causal=keys.causal(True),
        rms_norm_eps=0.0,
        layer_norm_eps=keys.positive("attention.layer_norm_epsilon"),
        pooling=keys.pooling("last"),
        rope=RopeConfig(0, 10000.0),
        clamp_kqv=keys.positive("attention.clamp_kqv") if keys.has("attention.clamp_kqv") else 0.0,
        alibi_max_bias=keys.positive("attention.max_alibi_bias"),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        h = blocks.plain_mlp(g, c, w, x, i, g.gelu, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
