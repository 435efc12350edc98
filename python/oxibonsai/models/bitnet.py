"""BitNet b1.58: ternary weights, units of SiLU or squared ReLU, a norm before each output projection."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Dimensions and constants."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        hidden_act=keys.text("hidden_activation", "silu", ("silu", "relu2")),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    gated = g.gated_relu2 if c.hidden_act == "relu2" else g.swiglu
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        a = norm(g, c, w, a, f"{b}.attn_sub_norm")
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"{b}.ffn_norm")

        def unit(gate: Value, up: Value, name: str = f"{b}.ffn_sub_norm") -> Value:
            return norm(g, c, w, gated(gate, up), name)

        h = blocks.gated_mlp(g, c, w, x, i, unit, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
