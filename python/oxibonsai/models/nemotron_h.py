"""Nemotron-H: each layer is a Mamba 2, attention without positions, or a feed-forward part.

The feed-forward part of Nemotron 3 is a mixture of experts without gates.
"""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts, mamba2
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import FEED_FORWARD, FULL_ATTENTION, MAMBA, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return a layer with key-value heads attends, one with a feed-forward length is nothing else."""
    layers = keys.layers()
    heads = keys.counts("attention.head_count_kv", layers)
    widths = keys.counts("feed_forward_length", layers)
    if len(set(heads) - {0}) > 1 or len(set(widths) - {0}) > 1:
        raise keys.unsupported("layers of one kind have different dimensions")
    if any(h and w for h, w in zip(heads, widths, strict=True)):
        raise keys.fail("a layer has key-value heads and a feed-forward length")
    if keys.flag("rope.scaling.finetuned", False):
        raise keys.unsupported("Nemotron-H with a rotary embedding is not supported")
    shared = dimensions(keys, max(heads) or 1, ff=max(widths))
    # Of layers that draft; of all norms where the file has no other.
    epsilon = keys.real("attention.layer_norm_epsilon", 0.0) or None
    types = [
        FULL_ATTENTION if h else FEED_FORWARD if w else MAMBA
        for h, w in zip(heads, widths, strict=True)
    ]
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon", epsilon),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]).without(),
        layer_types=tuple(types),
        mamba=mamba2.read_mamba2(keys),
    )


def read_moe(keys: Keys) -> ModelConfig:
    """All feed-forward parts are mixtures of experts."""
    config = read_config(keys)
    own = experts.read_experts(keys, scoring="sigmoid")
    groups, kept = experts.read_groups(keys, own.num_experts, own.num_experts_per_tok)
    width = experts.read_shared_width(keys)
    if width == 0:
        raise keys.fail("it has no shared expert, which every mixture of the architecture has")
    own = replace(
        own,
        shared_intermediate_size=width,
        latent_size=keys.count("moe_latent_size"),
        normalize=keys.flag("expert_weights_norm", False),
        scale=keys.positive("expert_weights_scale", 1.0),
        groups=groups,
        kept_groups=kept,
        best_of_group=2 if groups > 1 else 1,
    )
    return replace(config, experts=own)


def _mixture(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Experts between two matrices that all share, if the model has them, and one beside them."""
    e, hidden, b = experts.experts_of(c), c.hidden_size, f"blk.{layer}.ffn"
    bias = experts.selection_bias(c, w, layer)
    routing = experts.route(g, c, w, x, layer, selection_bias=bias)
    inner = x
    if e.latent_size:
        (inner,) = g.linear(x, w.matrix(f"{b}_latent_down", e.latent_size, hidden))
    mixed = experts.plain_experts(g, c, w, inner, layer, routing, g.relu2)
    (up,) = g.linear(x, w.matrix(f"{b}_up_shexp", e.shared_intermediate_size, hidden))
    down = w.matrix(f"{b}_down_shexp", hidden, e.shared_intermediate_size)
    (h,) = g.linear(g.relu2(up), down, add=residual)
    if e.latent_size:
        (h,) = g.linear(mixed, w.matrix(f"{b}_latent_up", hidden, e.latent_size), add=h)
        return h
    return g.add(h, mixed)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i, kind in enumerate(c.layer_types):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        if kind == MAMBA:
            y = mamba2.scan_layer(g, c, w, i, x)
            (h,) = g.linear(y, w.matrix(f"blk.{i}.ssm_out", c.hidden_size, y.cols), add=h)
        elif kind == FEED_FORWARD and c.experts is not None:
            h = _mixture(g, c, w, i, x, h)
        elif kind == FEED_FORWARD:
            h = blocks.plain_mlp(g, c, w, x, i, g.relu2, add=h)
        else:
            q, k, v = blocks.query_key_value(g, c, w, x, i)
            a = blocks.attention(g, c, q, k, v, c.cached_layer(i))
            h = blocks.attention_output(g, c, w, a, i, add=h)
    return h


NEMOTRON_H = Architecture(read_config, hidden_states)
NEMOTRON_H_MOE = Architecture(read_moe, hidden_states)
