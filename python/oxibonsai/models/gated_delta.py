"""Gated DeltaNet: the layers of linear attention of Qwen3-Next and Qwen3.5."""

from __future__ import annotations

import numpy as np

from oxibonsai.graph import Builder, Value
from oxibonsai.models.config import (
    FULL_ATTENTION,
    LINEAR_ATTENTION,
    GatedDeltaConfig,
    ModelConfig,
)
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Of the norms of queries and keys; no file has it.
_EPS = 1e-6


def read_gated_delta(keys: Keys) -> GatedDeltaConfig:
    """Return the ``ssm.`` keys."""
    heads, inner = keys.integer("ssm.time_step_rank"), keys.integer("ssm.inner_size")
    key_heads = keys.integer("ssm.group_count")
    if inner % heads != 0 or heads % key_heads != 0:
        raise keys.fail(
            f"{inner} inner values, {heads} value heads and {key_heads} key heads do not divide"
        )
    return GatedDeltaConfig(
        conv_kernel_dim=keys.integer("ssm.conv_kernel"),
        num_key_heads=key_heads,
        num_value_heads=heads,
        key_head_dim=keys.integer("ssm.state_size"),
        value_head_dim=inner // heads,
    )


def read_layer_types(keys: Keys, layers: int) -> tuple[str, ...]:
    """Which layers attend: listed, or every n-th."""
    interval = keys.integer("full_attention_interval", 4)
    listed = keys.get("attention.recurrent_layers")
    if listed is None:
        recurrent = [(i + 1) % interval != 0 for i in range(layers)]
    else:
        values = listed.tolist() if isinstance(listed, np.ndarray) else listed
        known = isinstance(values, list) and all(isinstance(v, bool) for v in values)
        if not known or len(values) < layers:
            raise keys.fail(f"attention.recurrent_layers does not list {layers} layers")
        recurrent = values[:layers]
    return tuple(LINEAR_ATTENTION if r else FULL_ATTENTION for r in recurrent)


def linear_attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Return the layer's normed input x through its gated delta rule, added to ``residual``.

    Value head h reads key head ``h % num_key_heads``, which is how files of Qwen3.5 order the heads.
    """
    b, d = f"blk.{layer}", c.gated_delta
    assert d is not None
    heads = d.num_value_heads
    width = 2 * d.key_width + d.value_width
    qkv, z, beta, alpha = g.linear(
        x,
        w.matrix(f"{b}.attn_qkv", width, c.hidden_size),
        w.matrix(f"{b}.attn_gate", d.value_width, c.hidden_size),
        w.matrix(f"{b}.ssm_beta", heads, c.hidden_size),
        w.matrix(f"{b}.ssm_alpha", heads, c.hidden_size),
    )
    return delta_rule(g, c, w, layer, (qkv, z, beta, alpha), residual, tiled=True)


def delta_rule(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    layer: int,
    projected: tuple[Value, Value, Value, Value],
    residual: Value,
    *,
    tiled: bool,
) -> Value:
    """Add what follows the projections of a layer to ``residual``.

    Args:
        g: Of the pass.
        c: With a gated delta rule.
        w: The model's tensors.
        layer: Whose they are.
        projected: Queries, keys and values, gates of the results, and beta and alpha.
        residual: [tokens, hidden].
        tiled: Value head h reads key head ``h % num_key_heads``; else those that share one are
            neighbours.
    """
    b, d = f"blk.{layer}", c.gated_delta
    assert d is not None
    qkv, z, beta, alpha = projected
    heads, width = d.num_value_heads, projected[0].cols
    qkv = g.conv1d(qkv, w.floats(f"{b}.ssm_conv1d.weight", width, d.conv_kernel_dim), silu=True)
    o = g.gated_delta(
        qkv,
        alpha,
        beta,
        dt_bias=w.vector(f"{b}.ssm_dt.bias", heads),
        decay=w.vector(f"{b}.ssm_a", heads),
        key_heads=d.num_key_heads,
        key_dim=d.key_head_dim,
        value_dim=d.value_head_dim,
        tiled=tiled,
        eps=_EPS,
    )
    o = g.head_norm(o, w.vector(f"{b}.ssm_norm.weight", d.value_head_dim), c.rms_norm_eps)
    o = g.swiglu(z, o)
    out = w.matrix(f"{b}.ssm_out", c.hidden_size, d.value_width)
    if tiled:
        o = g.regroup_values(o, out, d.num_key_heads, heads)
    (h,) = g.linear(o, out, add=residual)
    return h
