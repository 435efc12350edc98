"""Mistral 3 (Ministral, Mistral Small 3.1): Llama's layers; queries may grow with the text."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Read the configuration; queries grow with the context where the file has a scale for it."""
    shared = dimensions(keys)
    rope = keys.rope(shared["head_dim"], interleaved=True)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        rope_query=_of_queries(keys, rope),
    )


def _of_queries(keys: Keys, rope: RopeConfig) -> RopeConfig:
    scale = keys.real("attention.temperature_scale", 0.0)
    if scale == 0.0:
        return rope
    if rope.rotary_dim != keys.integer("attention.key_length", rope.rotary_dim):
        raise keys.unsupported("a temperature of heads that are rotated in part is not supported")
    step = keys.integer("rope.scaling.original_context_length")
    return replace(rope, temperature=scale, temperature_step=step)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.images(g.embed(w.embedding(c)))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        q, k = g.rope(q, c.rope_query or c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
