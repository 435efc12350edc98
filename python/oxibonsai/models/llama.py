"""Llama (SmolLM2, Llama 2 and 3, Mistral), InternLM2, XVERSE; Qwen2 with biases, and EXAONE 3."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys, *, interleaved: bool = True) -> ModelConfig:
    """Llama's files keep the pairs of a rotation side by side, Qwen2's and EXAONE's half a head apart."""
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"], interleaved=interleaved),
        sliding_window=keys.window(),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    hidden, ff = c.hidden_size, c.intermediate_size
    q_width = c.num_attention_heads * c.head_dim
    kv_width = c.num_key_value_heads * c.head_dim
    h = g.images(g.embed(w.embedding(c)))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = g.rms_norm(h, w.vector(f"{b}.attn_norm.weight", hidden), c.rms_norm_eps)
        q, k, v = g.linear(
            x,
            w.matrix(f"{b}.attn_q", q_width, hidden),
            w.matrix(f"{b}.attn_k", kv_width, hidden),
            w.matrix(f"{b}.attn_v", kv_width, hidden),
            bias=[
                w.bias(f"{b}.attn_q", q_width),
                w.bias(f"{b}.attn_k", kv_width),
                w.bias(f"{b}.attn_v", kv_width),
            ],
        )
        q = g.rope(q, c.rope, c.head_dim)
        k = g.rope(k, c.rope, c.head_dim)
        a = g.attention(
            q,
            k,
            v,
            layer=i,
            head_dim=c.head_dim,
            scale=c.attention_scale,
            window=c.sliding_window,
        )
        (h,) = g.linear(
            a,
            w.matrix(f"{b}.attn_output", hidden, q_width),
            bias=[w.bias(f"{b}.attn_output", hidden)],
            add=h,
        )
        x = g.rms_norm(h, w.vector(f"{b}.ffn_norm.weight", hidden), c.rms_norm_eps)
        if c.experts is not None:
            routing = experts.route(g, c, w, x, i)
            h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
            continue
        gate, up = g.linear(
            x, w.matrix(f"{b}.ffn_gate", ff, hidden), w.matrix(f"{b}.ffn_up", ff, hidden)
        )
        (h,) = g.linear(g.swiglu(gate, up), w.matrix(f"{b}.ffn_down", hidden, ff), add=h)
    return h


def read_llama(keys: Keys) -> ModelConfig:
    """Mixtral's files are Llama's, with experts."""
    config = read_config(keys)
    if keys.count("expert_count") == 0:
        return config
    return replace(config, experts=experts.read_experts(keys, ff=config.intermediate_size))


LLAMA = Architecture(read_llama, hidden_states)
QWEN2 = Architecture(partial(read_config, interleaved=False), hidden_states)
