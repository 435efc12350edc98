"""Jamba: Mamba 1 and some layers of attention without positions; experts in some feed-forward parts."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts, mamba
from oxibonsai.models.architecture import Architecture, hybrid_dimensions, norm
from oxibonsai.models.config import MAMBA, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return the weights of a token's experts are their probabilities among all."""
    shared = hybrid_dimensions(keys, MAMBA)
    ff = shared["intermediate_size"]
    mixed = keys.count("expert_count") > 1
    if not mixed:
        keys.get("expert_used_count")  # says nothing of one expert, or of none
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]).without(),
        mamba=mamba.read_mamba(keys),
        experts=experts.read_experts(keys, normalize=False, ff=ff) if mixed else None,
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        if c.attends(i):
            q, k, v = blocks.query_key_value(g, c, w, x, i)
            a = blocks.attention(g, c, q, k, v, c.cached_layer(i))
            h = blocks.attention_output(g, c, w, a, i, add=h)
        else:
            h = mamba.scan_layer(g, c, w, i, x, h, normed_parts=True)
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        if c.experts is not None and w.has(f"{b}.ffn_gate_inp.weight"):
            routing = experts.route(g, c, w, x, i)
            h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
        else:
            h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
