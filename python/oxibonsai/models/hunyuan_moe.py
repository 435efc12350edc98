"""Hunyuan with experts (A13B): q and k normalised after rope, a shared expert beside the others."""

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
    """Dimensions and constants; no layer is dense."""
    shared = dimensions(keys)
    # expert_feed_forward_length is there, but neither transformers nor llama.cpp takes that width.
    own = replace(experts.read_experts(keys), intermediate_size=shared["intermediate_size"])
    width = experts.read_shared_width(keys, shared["intermediate_size"])
    if width == 0:
        raise keys.fail("it has no shared expert, which every layer of the architecture has")
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        experts=replace(own, shared_intermediate_size=width),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), c.rms_norm_eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), c.rms_norm_eps)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        routing = experts.route(g, c, w, x, i)
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
        h = experts.shared_expert(g, c, w, x, i, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
