"""Baichuan 1 and 2: Llama's layers; in the 13B models linear biases for positions."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Files have no key for the kind of positions: the number of layers tells the models.
_LAYERS_OF_13B = 40
_MAX_BIAS = 8.0


def read_config(keys: Keys) -> ModelConfig:
    """Return the 7B models are rotated, the others are not."""
    shared = dimensions(keys)
    rope = keys.rope(shared["head_dim"], interleaved=True)
    biased = shared["num_hidden_layers"] == _LAYERS_OF_13B
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=RopeConfig(0, 10000.0) if biased else rope,
        alibi_max_bias=_MAX_BIAS if biased else 0.0,
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        if c.rope.rotary_dim > 0:
            q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
