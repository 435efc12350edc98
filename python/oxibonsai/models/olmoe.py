"""OLMoE: q and k normalised over all heads at once, experts in every layer."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return the weights of a token's experts are their probabilities among all."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        experts=experts.read_experts(keys, normalize=False, ff=shared["intermediate_size"]),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = norm(g, c, w, q, f"{b}.attn_q_norm"), norm(g, c, w, k, f"{b}.attn_k_norm")
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        routing = experts.route(g, c, w, x, i)
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
