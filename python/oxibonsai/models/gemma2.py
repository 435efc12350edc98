"""Gemma 2: every second layer sees a window, soft caps, norms before and after each half."""

from __future__ import annotations

import math

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

_LAYERS_OF_27B = 46


def read_config(keys: Keys) -> ModelConfig:
    """What a file does not say is as Gemma 2 was published.

    Files have no key for the scale of the 27B model, which is not that of its heads' width.
    """
    shared = dimensions(keys)
    if shared["num_hidden_layers"] == _LAYERS_OF_27B:
        scale = (shared["hidden_size"] / shared["num_attention_heads"]) ** -0.5
        shared["attention_scale"] = keys.real("attention.scale", scale)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        sliding_window=keys.integer("attention.sliding_window", 4096),
        sliding_window_pattern=2,
        attn_logit_softcapping=keys.real("attn_logit_softcapping", 50.0),
        final_logit_softcapping=keys.real("final_logit_softcapping", 30.0),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), math.sqrt(c.hidden_size))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        window = c.sliding_window if c.is_local(i) else 0
        a = blocks.attention(g, c, q, k, v, i, window=window)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        x = blocks.gated_mlp(g, c, w, x, i, g.geglu)
        h = g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
