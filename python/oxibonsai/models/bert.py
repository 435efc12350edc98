"""BERT (MiniLM, BGE, E5): an encoder with learned positions, norms after each half, GELU."""

from __future__ import annotations

from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Positions are learned: nothing is rotated."""
    return ModelConfig(
        **dimensions(keys),
        causal=keys.causal(False),
        rms_norm_eps=0.0,
        layer_norm_eps=keys.real("attention.layer_norm_epsilon"),
        pooling=keys.pooling("mean"),
        rope=RopeConfig(0, 10000.0),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]. Every token is of the first segment."""
    hidden, ff = c.hidden_size, c.intermediate_size

    def norm(x: Value, name: str) -> Value:
        weight, bias = w.vector(f"{name}.weight", hidden), w.vector(f"{name}.bias", hidden)
        return g.layer_norm(x, weight, bias, c.layer_norm_eps)

    h = g.add_vector(g.embed(w.embedding(c)), w.first_row("token_types", hidden))
    h = g.add(h, g.embed_positions(w.matrix("position_embd", c.max_position_embeddings, hidden)))
    h = norm(h, "token_embd_norm")
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        q, k, v = g.linear(
            h,
            *(w.matrix(f"{b}.{part}", hidden, hidden) for part in ("attn_q", "attn_k", "attn_v")),
            bias=[w.bias(f"{b}.{part}", hidden) for part in ("attn_q", "attn_k", "attn_v")],
        )
        a = g.attend_local(q, k, v, head_dim=c.head_dim, scale=c.attention_scale)
        (a,) = g.linear(
            a,
            w.matrix(f"{b}.attn_output", hidden, hidden),
            bias=[w.bias(f"{b}.attn_output", hidden)],
            add=h,
        )
        h = norm(a, f"{b}.attn_output_norm")
        (x,) = g.linear(h, w.matrix(f"{b}.ffn_up", ff, hidden), bias=[w.bias(f"{b}.ffn_up", ff)])
        (x,) = g.linear(
            g.gelu(x),
            w.matrix(f"{b}.ffn_down", hidden, ff),
            bias=[w.bias(f"{b}.ffn_down", hidden)],
            add=h,
        )
        h = norm(x, f"{b}.layer_output_norm")
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
