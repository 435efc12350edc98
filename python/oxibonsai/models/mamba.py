"""Mamba and Falcon Mamba: selective scans instead of attention; no positions, no feed-forward part."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import MAMBA, MambaConfig, ModelConfig
from oxibonsai.models.hadamard import read_rotation
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Of Falcon Mamba's norms of time steps, b and c, which have no weights; no file has it.
_FALCON_EPS = 1e-6


def attention_free(keys: Keys, layer_type: str = MAMBA) -> dict[str, Any]:
    """Fields of :class:`ModelConfig` of a model no layer of which attends.

    Args:
        keys: Of the file.
        layer_type: Of its layers; those of Mamba have no feed-forward part.
    """
    layers = keys.layers()
    zeros = ["attention.head_count", *(["feed_forward_length"] if layer_type == MAMBA else [])]
    for key in zeros:
        if not keys.is_zero(key, 0):
            raise keys.unsupported(
                f"{keys.architecture}.{key} is {keys.get(key)!r}, which is 0 where no layer attends"
            )
    file = keys.checkpoint.file
    return {
        "architecture": keys.architecture,
        "vocab_size": keys.checkpoint.shape("token_embd.weight")[0],
        "hidden_size": keys.integer("embedding_length"),
        "intermediate_size": keys.count("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": 0,
        "num_key_value_heads": 0,
        "head_dim": 0,
        "max_position_embeddings": keys.integer("context_length"),
        "attention_scale": 1.0,
        "rope": RopeConfig(rotary_dim=0, theta=10000.0),
        "pooling": keys.pooling("last"),
        "layer_types": (layer_type,) * layers,
        "name": str(file.get("general.name", "")),
        "hadamard": read_rotation(file, keys.checkpoint.path),
    }


def read_mamba(keys: Keys) -> MambaConfig:
    """Return the ``ssm.`` keys of Mamba 1."""
    return MambaConfig(
        conv_kernel=keys.integer("ssm.conv_kernel"),
        intermediate_size=keys.integer("ssm.inner_size"),
        state_size=keys.integer("ssm.state_size"),
        time_step_rank=keys.integer("ssm.time_step_rank"),
    )


def read_config(keys: Keys) -> ModelConfig:
    """Dimensions and constants; Falcon Mamba is the one with norms in its layers."""
    normed = keys.get("ssm.dt_b_c_rms", False)
    if not isinstance(normed, bool):
        raise keys.fail(f"{keys.architecture}.ssm.dt_b_c_rms is {normed!r}, not true or false")
    return ModelConfig(
        **attention_free(keys),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        mamba=read_mamba(keys),
        inner_norm_eps=_FALCON_EPS if normed else 0.0,
    )


def scan_layer(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    layer: int,
    x: Value,
    residual: Value,
    *,
    normed_parts: bool = False,
) -> Value:
    """Return the layer's normed input x through its selective scan, added to ``residual``.

    Time steps, b and c are normed where the configuration says so, and with weights if
    ``normed_parts``.
    """
    m, b = c.mamba, f"blk.{layer}"
    assert m is not None
    inner, rank, state = m.intermediate_size, m.time_step_rank, m.state_size
    (both,) = g.linear(x, w.matrix(f"{b}.ssm_in", 2 * inner, c.hidden_size))
    x = g.conv1d(
        g.select_columns(both, 0, inner),
        w.floats(f"{b}.ssm_conv1d.weight", inner, m.conv_kernel),
        w.bias(f"{b}.ssm_conv1d", inner),
        silu=True,
    )
    (parts,) = g.linear(x, w.matrix(f"{b}.ssm_x", rank + 2 * state, inner))
    sizes = {"dt": (0, rank), "b": (rank, state), "c": (rank + state, state)}
    normed = {}
    for name, (first, size) in sizes.items():
        value = g.select_columns(parts, first, size)
        if c.inner_norm_eps > 0.0:
            value = g.rms_norm(value, np.ones(size, np.float32), c.inner_norm_eps)
        elif normed_parts:
            value = g.rms_norm(value, w.vector(f"{b}.ssm_{name}_norm.weight", size), c.rms_norm_eps)
        normed[name] = value
    (dt,) = g.linear(normed["dt"], w.matrix(f"{b}.ssm_dt", inner, rank))
    y = g.mamba_scan(
        x,
        dt,
        normed["b"],
        normed["c"],
        dt_bias=w.vector(f"{b}.ssm_dt.bias", inner),
        decay=w.floats(f"{b}.ssm_a", inner, state),
        skip=w.vector(f"{b}.ssm_d", inner),
    )
    y = g.swiglu(g.select_columns(both, inner, inner), y)
    (h,) = g.linear(y, w.matrix(f"{b}.ssm_out", c.hidden_size, inner), add=residual)
    return h


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = g.rms_norm(h, w.vector(f"blk.{i}.attn_norm.weight", c.hidden_size), c.rms_norm_eps)
        h = scan_layer(g, c, w, i, x, h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
