"""ModernBERT: an encoder with a norm before each half, every third layer global, the others local."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oxibonsai.architectures.layers.blocks import (
    attention_output,
    gated_mlp,
    local_attention,
    query_key_value,
)
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.pooled import read_classifier
from oxibonsai.models.weights import Weights

# Where a file does not say: the base of local layers, and one global layer of three, the first.
_LOCAL_THETA, _PERIOD = 10000.0, 3


def read_config(keys: Keys) -> ModelConfig:
    """Read the configuration; windows count both sides, local layers have their own rotation."""
    shared = dimensions(keys)
    if keys.window() == 1:
        raise keys.unsupported("a window of one token, which sees itself alone, is not supported")
    rope = keys.rope(shared["head_dim"])
    return ModelConfig(
        **shared,
        causal=keys.causal(False),
        rms_norm_eps=0.0,
        layer_norm_eps=_epsilon(keys),
        pooling=keys.pooling("mean"),
        classifier=read_classifier(keys, default_pooling="mean", activation="gelu"),
        rope=rope,
        rope_local=replace(rope, theta=keys.theta("rope.freq_base_swa", _LOCAL_THETA)),
        sliding_window=keys.window() // 2,
        local_layers=_local_layers(keys),
        hidden_act=keys.text("hidden_activation", "gelu", ("gelu", "silu")),
    )


def _local_layers(keys: Keys) -> tuple[bool, ...]:
    """Whether each layer is local: listed, or all but the first of each period."""
    pattern = "attention.sliding_window_pattern"
    if isinstance(keys.get(pattern), list | np.ndarray):
        return keys.local_layers(_PERIOD)
    period = keys.integer(pattern, _PERIOD)
    return tuple(i % period != 0 for i in range(keys.layers()))


def _epsilon(keys: Keys) -> float:
    """Return the epsilon of the norms; files hold it under the name of the other kind too, or only."""
    other = keys.get("attention.layer_norm_rms_epsilon")
    return keys.positive("attention.layer_norm_epsilon", other)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last norm: [n, hidden]."""
    unit = g.swiglu if c.hidden_act == "silu" else g.exact_geglu
    h = norm(g, c, w, g.embed(w.embedding(c)), "token_embd_norm")
    for i in range(c.num_hidden_layers):
        name, local = f"blk.{i}.attn_norm", c.is_local(i)
        x = norm(g, c, w, h, name) if i > 0 or w.has(f"{name}.weight") else h
        rope = c.rope_local if local and c.rope_local is not None else c.rope
        q, k, v = query_key_value(g, c, w, x, i)
        q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
        a = local_attention(g, c, q, k, v, window=c.sliding_window if local else 0)
        h = attention_output(g, c, w, a, i, add=h)
        h = gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, unit, add=h)
    return norm(g, c, w, h, "output_norm")


ARCHITECTURE = Architecture(read_config, hidden_states)
