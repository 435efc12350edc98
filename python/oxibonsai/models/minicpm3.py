"""MiniCPM 3: latent attention, and factors of embeddings, residuals and logits."""

from __future__ import annotations

import math

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.latent import latent_attention, read_latent
from oxibonsai.models.weights import Weights

# Of the norms of latent vectors, whatever that of the others is.
_LATENT_EPS = 1e-6


def read_config(keys: Keys) -> ModelConfig:
    """Most files have no factors: they are those of the 4B model."""
    latent, head = read_latent(keys, norm_eps=_LATENT_EPS)
    shared = dimensions(keys, head_dim=latent.cache_dim, kv_heads=1)
    layers, hidden = shared["num_hidden_layers"], shared["hidden_size"]
    return ModelConfig(
        **shared | {"attention_scale": keys.real("attention.scale", head**-0.5)},
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(latent.qk_rope_head_dim),
        latent=latent,
        embedding_scale=keys.positive("embedding_scale", 12.0),
        residual_scale=keys.positive("residual_scale", 1.4 / math.sqrt(layers)),
        logit_scale=1.0 / keys.positive("logit_scale", hidden / 256.0),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), c.embedding_scale)
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        a = latent_attention(g, c, w, i, x, add=None)
        h = g.add(h, g.scale(a, c.residual_scale))
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        x = blocks.gated_mlp(g, c, w, x, i, g.swiglu)
        h = g.add(h, g.scale(x, c.residual_scale))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
