"""Apertus: q and k normalised per head, xIELU without a gate, whose constants each layer has."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

_PARTS = ("alpha_p", "alpha_n", "beta", "eps")


def read_config(keys: Keys) -> ModelConfig:
    """Dimensions, and the constants of every layer's activation."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        xielu=_xielu(keys, shared["num_hidden_layers"]),
    )


def _xielu(keys: Keys, layers: int) -> tuple[tuple[float, float, float, float], ...]:
    """alpha_p, alpha_n, beta and eps of each layer; the file holds both alphas before a softplus."""
    found = []
    for part in _PARTS:
        value = keys.checkpoint.file.get(f"xielu.{part}")
        numbers = np.full(layers, value) if isinstance(value, float) else value
        if not isinstance(numbers, np.ndarray) or numbers.shape != (layers,):
            raise keys.fail(f"xielu.{part} is {value!r}, not a number for each of {layers} layers")
        if not np.isfinite(numbers).all() or np.abs(numbers).max() > 64.0:
            raise keys.fail(f"xielu.{part} has a number that is not within -64 and 64")
        found.append([float(n) for n in numbers])
    return tuple(
        (_softplus(p), beta + _softplus(n), beta, eps)
        for p, n, beta, eps in zip(*found, strict=True)
    )


def _softplus(x: float) -> float:
    """ln(1 + e^x), in decimals: libm differs between machines, and results must not."""
    with localcontext() as context:
        context.prec = 40
        return float((1 + Decimal(x).exp()).ln())


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), c.rms_norm_eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), c.rms_norm_eps)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        alpha_p, alpha_n, beta, eps = c.xielu[i]

        def xielu(
            up: Value, p: float = alpha_p, n: float = alpha_n, b: float = beta, e: float = eps
        ) -> Value:
            return g.xielu(up, alpha_p=p, alpha_n=n, beta=b, eps=e)

        h = blocks.plain_mlp(g, c, w, x, i, xielu, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
