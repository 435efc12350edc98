"""Qwen3-Next and Qwen3.5 with experts: Qwen3.5's layers with mixtures for feed-forward parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.gated_delta import delta_rule, linear_attention
from oxibonsai.models.keys import Keys
from oxibonsai.models.qwen35 import gated_attention
from oxibonsai.models.qwen35 import read_config as read_dense
from oxibonsai.models.weights import Weights

Mixer = Callable[[Builder, ModelConfig, Weights, int, Value, Value], Value]


def read_config(keys: Keys) -> ModelConfig:
    """Qwen3.5's, and those of its experts, one of them shared."""
    found = experts.read_experts(keys)
    shared = keys.integer("expert_shared_feed_forward_length")
    keys.count("feed_forward_length")  # of layers without experts, of which there are none
    return replace(
        read_dense(keys, ff=found.intermediate_size),
        experts=replace(found, shared_intermediate_size=shared),
    )


def _grouped_attention(
    g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Return a layer of Qwen3-Next: beta and alpha are one matrix, value heads beside their key head's."""
    d, b, hidden = c.gated_delta, f"blk.{layer}", c.hidden_size
    assert d is not None
    heads = d.num_value_heads
    qkv, z, both = g.linear(
        x,
        w.matrix(f"{b}.attn_qkv", 2 * d.key_width + d.value_width, hidden),
        w.matrix(f"{b}.attn_gate", d.value_width, hidden),
        w.matrix(f"{b}.ssm_ba", 2 * heads, hidden),
    )
    each = heads // d.num_key_heads
    beta = g.select_columns(both, 0, each, 2 * each)
    alpha = g.select_columns(both, each, each, 2 * each)
    return delta_rule(g, c, w, layer, (qkv, z, beta, alpha), residual, tiled=False)


def _feed_forward(g: Builder, c: ModelConfig, w: Weights, i: int, h: Value) -> Value:
    b = f"blk.{i}"
    x = norm(g, c, w, h, f"{b}.post_attention_norm")
    routing = experts.route(g, c, w, x, i)
    mixed = experts.gated_experts(g, c, w, x, i, routing, g.swiglu)
    (gate,) = g.linear(x, w.row(f"{b}.ffn_gate_inp_shexp", c.hidden_size))
    shared = g.gate_rows(experts.shared_expert(g, c, w, x, i), gate)
    return g.add(h, g.add(mixed, shared))


def drafting_layer(g: Builder, c: ModelConfig, w: Weights, i: int, h: Value) -> Value:
    """Return a layer that predicts further tokens attends."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    return _feed_forward(g, c, w, i, gated_attention(g, c, w, i, x, h))


def hidden_states(g: Builder, c: ModelConfig, w: Weights, *, mixer: Mixer) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.images(g.embed(w.embedding(c)))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        h = (gated_attention if c.attends(i) else mixer)(g, c, w, i, x, h)
        h = _feed_forward(g, c, w, i, h)
    w.leave_out_drafting(c)
    return h


QWEN3NEXT = Architecture(
    read_config, partial(hidden_states, mixer=_grouped_attention), drafting_layer=drafting_layer
)
QWEN35MOE = Architecture(
    read_config, partial(hidden_states, mixer=linear_attention), drafting_layer=drafting_layer
)
