"""Ling 2 (BailingMoE 2): norms of queries and keys, dense layers first, then sigmoid routing.

The last layers of a file may predict further tokens; they are no part of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.drafting import DraftingLayers, layers_behind, layers_of_pass
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import RoutedMixture, Scoring
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    GgufKeys,
    Known,
    OfFolder,
    field,
    fixed,
    flag,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, LeftOut
from oxibonsai.graph import Builder, RopeConfig, Value

MATRICES = {"attention.query_key_value": "attn_qkv", "attention.dense": "attn_output"}
HEAD_NORMS = {"attention.query_layernorm": "attn_q_norm", "attention.key_layernorm": "attn_k_norm"}


@dataclass(frozen=True)
class SharedExpert:
    """The width of the experts that every token goes through, of which a folder has one."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        name, number = "moe_shared_expert_intermediate_size", "num_shared_experts"
        if config.count(config.get(number), number) != 1:
            raise config.unsupported(f"{number} is {config.get(number)}; known is 1")
        stated = config.get(name)
        return int(known["moe_intermediate_size"]) if stated is None else config.count(stated, name)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"moe_shared_expert_intermediate_size": value, "num_shared_experts": 1}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says: a width, and how many experts have it."""
        one = keys.integer("expert_shared_feed_forward_length", known["moe_intermediate_size"])
        return one * keys.integer("expert_shared_count")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys."""
        return {
            "expert_shared_feed_forward_length": (value, "u32"),
            "expert_shared_count": (1, "u32"),
        }


def layers_left_out(config: ConfigJson) -> int:
    """Return how many layers a folder has behind those of the pass."""
    layers = config.count(config.get("num_hidden_layers"), "num_hidden_layers")
    return layers_behind(config.parameters(), layers)


@dataclass(frozen=True, kw_only=True)
class Config(RoutedMixture):
    """The fields of a model."""

    num_hidden_layers: int = layers_of_pass()
    shared_intermediate_size: int = field(SharedExpert())
    scoring: str = field(Scoring("sigmoid", "score_function"))
    norm_topk_prob: bool = flag(
        "norm_topk_prob", "expert_weights_norm", default=False, key_default=False
    )
    normed_heads: bool = fixed(True, name="use_qk_norm")
    bias: bool = fixed(False, name="use_bias")
    attention_bias: bool = fixed(False, name="use_qkv_bias")
    num_nextn_predict_layers: int = field(DraftingLayers(lambda names, layers: 0))
    left_out: int = field(OfFolder(layers_left_out, 0), compare=False)
    rope: RopeConfig = field(Rope(("default", "linear", "yarn"), counted=True, share=0.5))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="model.word_embeddings")
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **HEAD_NORMS})
        yield from decoder.matrices(i, MATRICES)
        yield from mixture.feed_forward(c, i, selection_bias_name="mlp.gate.expert_bias")
    for i in range(c.num_hidden_layers, c.num_hidden_layers + c.left_out):
        yield LeftOut(f"model.layers.{i}.*")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    q, k = blocks.head_norms(g, c, w, q, k, i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, add=h)


FAMILY = Family("bailingmoe2", ("bailing_moe_v2",), "", "Ling 2", Config, tensors, layer)
