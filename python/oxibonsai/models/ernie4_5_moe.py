"""ERNIE 4.5 with experts: a few dense layers, then a shared expert beside the others."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Every layer after the dense ones has experts."""
    shared = dimensions(keys)
    if keys.integer("interleave_moe_layer_step", 1) != 1:
        raise keys.unsupported("layers with experts between dense layers are not supported")
    own = replace(
        experts.read_experts(keys),
        first_dense_layers=keys.count("leading_dense_block_count"),
        shared_intermediate_size=experts.read_shared_width(keys),
    )
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=True),
        experts=own,
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    e = experts.experts_of(c)
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        if i < e.first_dense_layers:
            h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
            continue
        routing = experts.route(g, c, w, x, i, selection_bias=experts.selection_bias(c, w, i))
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
        if e.shared_intermediate_size:
            h = experts.shared_expert(g, c, w, x, i, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
