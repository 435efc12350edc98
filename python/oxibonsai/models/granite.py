"""Granite 3 and MiniCPM: Llama's layers with factors of embeddings, residuals and logits."""

from __future__ import annotations

import math

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Read the configuration; ``logit_scale`` divides, ``rope.scaling.finetuned`` asks for positions."""
    shared = dimensions(keys)
    rotated = keys.flag("rope.scaling.finetuned", True)
    rope = keys.rope(shared["head_dim"], interleaved=True)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope if rotated else rope.without(),
        logit_scale=1.0 / keys.positive("logit_scale"),
        embedding_scale=keys.positive("embedding_scale", 1.0),
        residual_scale=keys.positive("residual_scale", 1.0),
    )


def read_config_minicpm(keys: Keys) -> ModelConfig:
    """MiniCPM's early files have no factors: they are those of its 2B model."""
    shared = dimensions(keys)
    layers, hidden = shared["num_hidden_layers"], shared["hidden_size"]
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=True),
        logit_scale=1.0 / keys.positive("logit_scale", hidden / 256.0),
        embedding_scale=keys.positive("embedding_scale", 12.0),
        residual_scale=keys.positive("residual_scale", 1.4 / math.sqrt(layers)),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), c.embedding_scale)
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        if c.rope.rotary_dim > 0:
            q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, g.scale(a, c.residual_scale))
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        x = blocks.gated_mlp(g, c, w, x, i, g.swiglu)
        h = g.add(h, g.scale(x, c.residual_scale))
    return h


GRANITE = Architecture(read_config, hidden_states)
MINICPM = Architecture(read_config_minicpm, hidden_states)
