"""Mamba 2: state space layers whose heads keep a matrix each; no attention, no positions."""

from __future__ import annotations

from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import MambaConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.mamba import attention_free
from oxibonsai.models.weights import Weights


def read_mamba2(keys: Keys) -> MambaConfig:
    """Return the ``ssm.`` keys of Mamba 2."""
    heads, inner = keys.integer("ssm.time_step_rank"), keys.integer("ssm.inner_size")
    groups = keys.integer("ssm.group_count")
    if inner % heads != 0 or heads % groups != 0:
        raise keys.fail(f"{inner} inner values, {heads} heads and {groups} groups do not divide")
    return MambaConfig(
        conv_kernel=keys.integer("ssm.conv_kernel"),
        intermediate_size=inner,
        state_size=keys.integer("ssm.state_size"),
        num_heads=heads,
        n_groups=groups,
    )


def read_config(keys: Keys) -> ModelConfig:
    """Dimensions and constants."""
    return ModelConfig(
        **attention_free(keys),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        mamba=read_mamba2(keys),
    )


def scan_layer(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, *, normed: bool = True
) -> Value:
    """Return the output matrix's input for the layer's normed input x: [n, mamba.intermediate_size].

    ``normed``: with a norm over each group at its end.
    """
    m, b = c.mamba, f"blk.{layer}"
    assert m is not None
    inner, heads = m.intermediate_size, m.num_heads
    width = inner + 2 * m.n_groups * m.state_size
    (parts,) = g.linear(x, w.matrix(f"{b}.ssm_in", inner + width + heads, c.hidden_size))
    xbc = g.conv1d(
        g.select_columns(parts, inner, width),
        w.floats(f"{b}.ssm_conv1d.weight", width, m.conv_kernel),
        w.bias(f"{b}.ssm_conv1d", width),
        silu=True,
    )
    y = g.mamba2_scan(
        xbc,
        g.select_columns(parts, inner + width, heads),
        dt_bias=w.vector(f"{b}.ssm_dt.bias", heads),
        decay=w.floats(f"{b}.ssm_a", heads, 1),
        skip=w.floats(f"{b}.ssm_d", heads, 1),
        groups=m.n_groups,
        state_dim=m.state_size,
    )
    y = g.swiglu(g.select_columns(parts, 0, inner), y)
    if not normed:
        return y
    norm = w.floats(f"{b}.ssm_norm.weight", m.n_groups, inner // m.n_groups)
    return g.group_norm(y, norm, c.rms_norm_eps, m.n_groups)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    assert c.mamba is not None
    hidden, inner = c.hidden_size, c.mamba.intermediate_size
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = g.rms_norm(h, w.vector(f"{b}.attn_norm.weight", hidden), c.rms_norm_eps)
        y = scan_layer(g, c, w, i, x)
        (h,) = g.linear(y, w.matrix(f"{b}.ssm_out", hidden, inner), add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
