"""Llama's architecture, whose files may have experts in place of the MLP (Mixtral)."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.architectures import llama
from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models import experts, families
from oxibonsai.models.architecture import Architecture, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return Llama's config, with experts if the file has some."""
    config = families.read_config(llama.FAMILY, keys)
    if keys.count("expert_count") == 0:
        return config
    return replace(config, experts=experts.read_experts(keys, ff=config.intermediate_size))


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states after the last layer: [tokens, hidden]."""
    if c.experts is None:
        return families.hidden_states(llama.FAMILY, g, c, w)
    h = g.images(g.embed(w.embedding(c)))
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        a = blocks.rotated_attention(g, c, w, x, i, window=c.sliding_window)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        routing = experts.route(g, c, w, x, i)
        h = g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
