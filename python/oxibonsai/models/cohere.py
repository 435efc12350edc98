"""Command-R and Aya, and Command R7B: both halves of a layer read one norm without a bias."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Command-R: every layer sees all and is rotated."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=0.0,
        layer_norm_eps=keys.positive("attention.layer_norm_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=True),
        logit_scale=keys.positive("logit_scale", 1.0),
    )


def read_config_2(keys: Keys) -> ModelConfig:
    """Command R7B: layers with a window are rotated, the others know no positions."""
    config = read_config(keys)
    return replace(
        config,
        rope=RopeConfig(0, 10000.0),
        rope_local=config.rope,
        logit_scale=keys.positive("logit_scale"),
        sliding_window=keys.integer("attention.sliding_window"),
        local_layers=keys.local_layers(4),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        if w.has(f"{b}.attn_q_norm.weight"):  # Command-R+
            q = _head_norm(g, c, w, q, f"{b}.attn_q_norm")
            k = _head_norm(g, c, w, k, f"{b}.attn_k_norm")
        local = c.is_local(i)
        rope = c.rope_local if local and c.rope_local is not None else c.rope
        if rope.rotary_dim > 0:
            q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i, window=c.sliding_window if local else 0)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    return h


def _head_norm(g: Builder, c: ModelConfig, w: Weights, x: Value, name: str) -> Value:
    """LayerNorm over each head, with weights of its own."""
    heads = x.cols // c.head_dim
    weight = w.floats(f"{name}.weight", heads, c.head_dim).ravel()
    return g.layer_norm(x, weight, None, c.layer_norm_eps, groups=heads)


COMMAND_R = Architecture(read_config, hidden_states)
COHERE2 = Architecture(read_config_2, hidden_states)
