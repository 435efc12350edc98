"""Layers of Mamba 1 and Mamba 2: a convolution and a scan over a state of fixed size."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.graph import Builder, Value


class Scanned(Protocol):
    """A model with layers that scan."""

    @property
    def rms_norm_eps(self) -> float:
        """Epsilon of RMSNorms."""
        ...

    @property
    def mamba_d_conv(self) -> int:
        """Taps of the convolution before the scan."""
        ...

    @property
    def mamba_d_ssm(self) -> int:
        """Columns of the scan's input and result."""
        ...

    @property
    def mamba_d_state(self) -> int:
        """Values of a column's state in Mamba 1; in Mamba 2 a head's state has so many rows."""
        ...


class Mamba(Scanned, Protocol):
    """A model with layers of Mamba 1."""

    @property
    def mamba_dt_rank(self) -> int:
        """Columns that all time steps are made of."""
        ...


class Mamba2(Scanned, Protocol):
    """A model with layers of Mamba 2."""

    @property
    def mamba_n_heads(self) -> int:
        """Heads, which share the columns and have a time step each."""
        ...

    @property
    def mamba_n_groups(self) -> int:
        """Groups of heads, which share what is read from their states and written to them."""
        ...


def mamba_scan(
    g: Builder,
    c: Mamba,
    w: Weights,
    layer: int,
    x: Value,
    *,
    add: Value,
    eps_without_weights: float = 0.0,
    normed: bool = False,
) -> Value:
    """Return the layer's normed input x through Mamba 1, plus ``add``: [tokens, hidden].

    Args:
        g: Of the pass.
        c: The model's sizes.
        w: Its tensors.
        layer: Whose scan.
        x: [tokens, hidden].
        add: [tokens, hidden].
        eps_without_weights: Of norms of time steps, b and c that have no weights; 0: they have none.
        normed: Whether time steps, b and c have norms with weights.
    """
    b, hidden = f"blk.{layer}", x.cols
    inner, rank, state = c.mamba_d_ssm, c.mamba_dt_rank, c.mamba_d_state
    (both,) = g.linear(x, w.matrix(f"{b}.ssm_in", 2 * inner, hidden))
    x = g.conv1d(
        g.select_columns(both, 0, inner),
        w.floats(f"{b}.ssm_conv1d.weight", inner, c.mamba_d_conv),
        w.bias(f"{b}.ssm_conv1d", inner),
        silu=True,
    )
    (parts,) = g.linear(x, w.matrix(f"{b}.ssm_x", rank + 2 * state, inner))
    sizes = {"dt": (0, rank), "b": (rank, state), "c": (rank + state, state)}
    found = {}
    for name, (first, size) in sizes.items():
        value = g.select_columns(parts, first, size)
        if eps_without_weights > 0.0:
            value = g.rms_norm(value, np.ones(size, np.float32), eps_without_weights)
        elif normed:
            value = g.rms_norm(value, w.vector(f"{b}.ssm_{name}_norm.weight", size), c.rms_norm_eps)
        found[name] = value
    (dt,) = g.linear(found["dt"], w.matrix(f"{b}.ssm_dt", inner, rank))
    y = g.mamba_scan(
        x,
        dt,
        found["b"],
        found["c"],
        dt_bias=w.vector(f"{b}.ssm_dt.bias", inner),
        decay=w.floats(f"{b}.ssm_a", inner, state),
        skip=w.vector(f"{b}.ssm_d", inner),
    )
    y = g.swiglu(g.select_columns(both, inner, inner), y)
    (out,) = g.linear(y, w.matrix(f"{b}.ssm_out", hidden, inner), add=add)
    return out


def mamba2_scan(
    g: Builder,
    c: Mamba2,
    w: Weights,
    layer: int,
    x: Value,
    *,
    add: Value | None = None,
    normed: bool = True,
) -> Value:
    """Return the layer's normed input x through Mamba 2, plus ``add``: [tokens, hidden].

    Args:
        g: Of the pass.
        c: The model's sizes.
        w: Its tensors.
        layer: Whose scan.
        x: [tokens, hidden].
        add: [tokens, hidden].
        normed: Whether each group of the result has a norm.
    """
    b, hidden = f"blk.{layer}", x.cols
    inner, heads, groups = c.mamba_d_ssm, c.mamba_n_heads, c.mamba_n_groups
    width = inner + 2 * groups * c.mamba_d_state
    (parts,) = g.linear(x, w.matrix(f"{b}.ssm_in", inner + width + heads, hidden))
    xbc = g.conv1d(
        g.select_columns(parts, inner, width),
        w.floats(f"{b}.ssm_conv1d.weight", width, c.mamba_d_conv),
        w.bias(f"{b}.ssm_conv1d", width),
        silu=True,
    )
    y = g.mamba2_scan(
        xbc,
        g.select_columns(parts, inner + width, heads),
        dt_bias=w.vector(f"{b}.ssm_dt.bias", heads),
        decay=w.floats(f"{b}.ssm_a", heads, 1),
        skip=w.floats(f"{b}.ssm_d", heads, 1),
        groups=groups,
        state_dim=c.mamba_d_state,
    )
    y = g.swiglu(g.select_columns(parts, 0, inner), y)
    if normed:
        norm = w.floats(f"{b}.ssm_norm.weight", groups, inner // groups)
        y = g.group_norm(y, norm, c.rms_norm_eps, groups)
    (out,) = g.linear(y, w.matrix(f"{b}.ssm_out", hidden, inner), add=add)
    return out
