"""Granite 4: Mamba 2 and some layers of attention, with Granite's factors; experts in some models."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts, mamba2
from oxibonsai.models.architecture import Architecture, hybrid_dimensions, norm
from oxibonsai.models.config import MAMBA, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Read the configuration; ``logit_scale`` divides, ``rope.scaling.finetuned`` asks for positions."""
    shared = hybrid_dimensions(keys, MAMBA)
    width = keys.count("expert_shared_feed_forward_length")
    mixed = keys.count("expert_count") > 0
    if mixed:
        own = experts.read_experts(keys, ff=shared["intermediate_size"])
    else:
        keys.get("expert_used_count")  # says nothing where there are no experts
    rotated = keys.flag("rope.scaling.finetuned", True)
    rope = keys.rope(shared["head_dim"], interleaved=True)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope if rotated else rope.without(),
        logit_scale=1.0 / keys.positive("logit_scale", 1.0),
        embedding_scale=keys.positive("embedding_scale", 1.0),
        residual_scale=keys.positive("residual_scale", 1.0),
        mamba=mamba2.read_mamba2(keys),
        experts=replace(own, shared_intermediate_size=width) if mixed else None,
    )


def _attention(g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int) -> Value:
    q, k, v = blocks.query_key_value(g, c, w, x, layer)
    if c.rope.rotary_dim > 0:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = blocks.attention(g, c, q, k, v, c.cached_layer(layer))
    return blocks.attention_output(g, c, w, a, layer)


def _mamba(g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int) -> Value:
    y = mamba2.scan_layer(g, c, w, layer, x)
    (out,) = g.linear(y, w.matrix(f"blk.{layer}.ssm_out", c.hidden_size, y.cols))
    return out


def _feed_forward(g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int) -> Value:
    if c.experts is None:
        return blocks.gated_mlp(g, c, w, x, layer, g.swiglu)
    routing = experts.route(g, c, w, x, layer)
    mixed = experts.gated_experts(g, c, w, x, layer, routing, g.swiglu)
    if c.experts.shared_intermediate_size == 0:
        return mixed
    return experts.shared_expert(g, c, w, x, layer, add=mixed)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.scale(g.embed(w.embedding(c)), c.embedding_scale)
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        x = (_attention if c.attends(i) else _mamba)(g, c, w, x, i)
        h = g.add(h, g.scale(x, c.residual_scale))
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        x = _feed_forward(g, c, w, x, i)
        h = g.add(h, g.scale(x, c.residual_scale))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
