"""Parts of the layers of many decoders, by GGUF's names of their tensors.

A bias joins in where the file has it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np

from oxibonsai.architectures.layers.sizes import (
    Attending,
    Blocked,
    FeedForward,
    Layered,
    Normed,
    NormedHeads,
    Rotating,
    Scored,
    Weights,
)
from oxibonsai.graph import Builder, KeyPattern, Value, Vector


def norm(g: Builder, c: Normed, w: Weights, x: Value, name: str) -> Value:
    """Return the norm ``name`` over x, of the model's kind; a LayerNorm may have a bias."""
    weight = w.vector(f"{name}.weight", x.cols)
    if c.layer_norm_eps > 0.0:
        return g.layer_norm(x, weight, w.bias(name, x.cols), c.layer_norm_eps)
    return g.rms_norm(x, weight, c.rms_norm_eps)


def final_norm(g: Builder, c: Normed, w: Weights, h: Value) -> Value:
    """Return the norm before the output matrix."""
    return norm(g, c, w, h, "output_norm")


def logits(g: Builder, c: Scored, w: Weights, h: Value) -> Value:
    """Return the logits of normalised hidden states: [outputs, vocabulary]."""
    (x,) = g.linear(h, w.head(c), bias=[w.bias("output", c.vocab_size)])
    if c.logit_scale != 1.0:
        x = g.scale(x, c.logit_scale)
    if c.final_logit_softcapping > 0.0:
        x = g.softcap(x, c.final_logit_softcapping)
    return x


def query_key_value(
    g: Builder, c: Attending, w: Weights, x: Value, layer: int
) -> tuple[Value, Value, Value]:
    """Return projections of x, from one tensor (``attn_qkv``) or three, within ``clamp_kqv``."""
    kv = c.num_key_value_heads * c.head_dim
    rows = (c.num_attention_heads * c.head_dim, kv, kv)
    b = f"blk.{layer}.attn"
    if w.has(f"{b}_qkv.weight"):
        weights = w.split(f"{b}_qkv", rows, c.hidden_size)
        biases = w.split_bias(f"{b}_qkv", rows)
    else:
        parts = list(zip((f"{b}_q", f"{b}_k", f"{b}_v"), rows, strict=True))
        weights = [w.matrix(name, n, c.hidden_size) for name, n in parts]
        biases = [w.bias(name, n) for name, n in parts]
    q, k, v = g.linear(x, *weights, bias=biases)
    if c.clamp_kqv > 0.0:
        q, k, v = (g.clamp(part, c.clamp_kqv) for part in (q, k, v))
    return q, k, v


def head_norms(
    g: Builder, c: NormedHeads, w: Weights, q: Value, k: Value, layer: int
) -> tuple[Value, Value]:
    """Return q and k normalised per head: LayerNorms have a weight for each head, RMSNorms one for all."""
    b = f"blk.{layer}"
    return (
        _head_norm(g, c, w, q, f"{b}.attn_q_norm.weight"),
        _head_norm(g, c, w, k, f"{b}.attn_k_norm.weight"),
    )


def _head_norm(g: Builder, c: NormedHeads, w: Weights, x: Value, name: str) -> Value:
    if c.layer_norm_eps > 0.0:
        heads = x.cols // c.head_dim
        weight = w.floats(name, heads, c.head_dim).ravel()
        return g.layer_norm(x, weight, None, c.layer_norm_eps, groups=heads)
    return g.head_norm(x, w.vector(name, c.head_dim), c.rms_norm_eps)


def attention(
    g: Builder,
    c: Attending,
    q: Value,
    k: Value,
    v: Value,
    layer: int,
    *,
    window: int = 0,
    pattern: KeyPattern | None = None,
) -> Value:
    """Return causal attention with the model's scale and caps."""
    return g.attention(
        q,
        k,
        v,
        layer=layer,
        head_dim=c.head_dim,
        scale=c.attention_scale,
        window=window,
        softcap=c.attn_logit_softcapping,
        slopes=_slopes(c) if c.alibi_max_bias > 0.0 else None,
        pattern=pattern,
    )


def rotated_attention(
    g: Builder,
    c: Rotating,
    w: Weights,
    x: Value,
    layer: int,
    *,
    window: int = 0,
    pattern: KeyPattern | None = None,
) -> Value:
    """Return causal attention over x; queries and keys are rotated, if the model's are at all."""
    q, k, v = query_key_value(g, c, w, x, layer)
    if c.rope.rotary_dim > 0:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    return attention(g, c, q, k, v, layer, window=window, pattern=pattern)


def local_attention(
    g: Builder, c: Blocked, q: Value, k: Value, v: Value, *, window: int = 0
) -> Value:
    """Return the attention of an encoder, whose tokens see both sides; ``window`` keys on each, 0: all.

    Where the model has blocks, a token sees those of its pattern.
    """
    return g.attend_local(
        q,
        k,
        v,
        head_dim=c.head_dim,
        scale=c.attention_scale,
        window=window,
        slopes=_slopes(c) if c.alibi_max_bias > 0.0 else None,
        block_size=c.block_size,
        random_blocks=c.num_random_blocks,
    )


def _slopes(c: Attending) -> Vector:
    """Return the slopes of linear biases (arXiv 2108.12409): powers of two, rounded once.

    Heads past the largest power of two take every second slope of twice as many heads.
    """
    heads = c.num_attention_heads
    whole = 1 << (heads.bit_length() - 1)
    steps = [Decimal(i + 1) / whole for i in range(whole)]
    steps += [Decimal(2 * i + 1) / (2 * whole) for i in range(heads - whole)]
    with localcontext() as context:
        context.prec = 40
        slopes = [Decimal(2) ** (-Decimal(c.alibi_max_bias) * step) for step in steps]
    return np.array([float(s) for s in slopes], dtype=np.float32)


def attention_output(
    g: Builder, c: Layered, w: Weights, a: Value, layer: int, *, add: Value | None = None
) -> Value:
    """Return the projection after attention, plus ``add``."""
    name = f"blk.{layer}.attn_output"
    weight = w.matrix(name, c.hidden_size, a.cols)
    (out,) = g.linear(a, weight, bias=[w.bias(name, c.hidden_size)], add=add)
    return out


def gated_mlp(
    g: Builder,
    c: FeedForward,
    w: Weights,
    x: Value,
    layer: int,
    unit: Callable[[Value, Value], Value],
    *,
    add: Value | None = None,
) -> Value:
    """Return down(unit(gate(x), up(x))) + add; gate and up may be one tensor, gate first."""
    ff, hidden, b = c.intermediate_size, c.hidden_size, f"blk.{layer}.ffn"
    if w.has(f"{b}_gate.weight"):
        weights = [w.matrix(f"{b}_gate", ff, hidden), w.matrix(f"{b}_up", ff, hidden)]
        biases = [w.bias(f"{b}_gate", ff), w.bias(f"{b}_up", ff)]
    else:
        weights = w.split(f"{b}_up", (ff, ff), hidden)
        biases = w.split_bias(f"{b}_up", (ff, ff))
    gate, up = g.linear(x, *weights, bias=biases)
    return _down(g, c, w, unit(gate, up), layer, add)


def plain_mlp(
    g: Builder,
    c: FeedForward,
    w: Weights,
    x: Value,
    layer: int,
    activation: Callable[[Value], Value],
    *,
    add: Value | None = None,
) -> Value:
    """Return down(activation(up(x))) + add."""
    name = f"blk.{layer}.ffn_up"
    weight = w.matrix(name, c.intermediate_size, c.hidden_size)
    (x,) = g.linear(x, weight, bias=[w.bias(name, c.intermediate_size)])
    return _down(g, c, w, activation(x), layer, add)


def _down(g: Builder, c: FeedForward, w: Weights, x: Value, layer: int, add: Value | None) -> Value:
    name = f"blk.{layer}.ffn_down"
    weight = w.matrix(name, c.hidden_size, c.intermediate_size)
    (out,) = g.linear(x, weight, bias=[w.bias(name, c.hidden_size)], add=add)
    return out
