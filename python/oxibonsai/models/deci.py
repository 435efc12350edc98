"""DeciLM and Nemotron Super: Llama's layers of different sizes, some without attention or MLP."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, norm, varied_dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return a layer without heads has no attention, one without key-value heads a matrix in its place."""
    shared = varied_dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=True),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    attending = 0  # layers of the cache so far
    for i in range(c.num_hidden_layers):
        own = c.of_layer(i)
        if own.num_attention_heads > 0:
            a = norm(g, c, w, h, f"blk.{i}.attn_norm")
            if own.num_key_value_heads > 0:
                q, k, v = blocks.query_key_value(g, own, w, a, i)
                q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
                a = blocks.attention(g, own, q, k, v, attending)
                attending += 1
            h = blocks.attention_output(g, c, w, a, i, add=h)
        if own.intermediate_size > 0:
            x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
            h = blocks.gated_mlp(g, own, w, x, i, g.swiglu, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
