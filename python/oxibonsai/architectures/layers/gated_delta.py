"""Gated DeltaNet: the layers of linear attention of Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from oxibonsai.architectures.layers.sizes import Layered, Normed, Weights
from oxibonsai.graph import Builder, Value

# Of the norms of queries and keys; no file has it.
_EPS = 1e-6


@dataclass(frozen=True)
class GatedDeltaConfig:
    """Gated DeltaNet: layers of linear attention with a state of fixed size.

    Attributes:
        conv_kernel_dim: Taps of the convolution before the scan.
        num_key_heads, num_value_heads: Heads of queries and keys; of values, gates and states.
        key_head_dim, value_head_dim: A head's state is a matrix of both.
    """

    conv_kernel_dim: int
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int

    @property
    def key_width(self) -> int:
        """Return the width of all queries, or of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Return the width of all values."""
        return self.num_value_heads * self.value_head_dim


class Linear(Layered, Normed, Protocol):
    """A model some of whose layers have a gated delta rule."""

    @property
    def gated_delta(self) -> GatedDeltaConfig:
        """Sizes of the rule."""
        ...


def linear_attention(
    g: Builder, c: Linear, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Return the layer's normed input x through its gated delta rule, added to ``residual``.

    Value head h reads key head ``h % num_key_heads``, which is how files of Qwen3.5 order the heads.
    """
    b, d = f"blk.{layer}", c.gated_delta
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
    c: Linear,
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
