"""GLM-4: a part of each head is rotated; in the 0414 models norms before and after each half."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Rotated are pairs of neighbours."""
    shared = dimensions(keys)
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
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    return h


def hidden_states_4(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """The same with a norm after each half, too."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        x = blocks.gated_mlp(g, c, w, x, i, g.swiglu)
        h = g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))
    return h


CHATGLM = Architecture(read_config, hidden_states)
GLM4 = Architecture(read_config, hidden_states_4)
