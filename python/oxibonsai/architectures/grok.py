"""Grok 1 and 2: norms around both halves, capped scores, GELU experts, in Grok 2 beside a dense part.

Grok 2 is published in pieces for eight devices, under equal names, which no folder of safetensors has:
the table of tensors is Grok 1's, as transformers' remote code saves it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    FACTOR,
    Known,
    ToldByTensors,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.decoder_layer"
NORMS = {
    "rms_norm": "attn_norm",
    "rms_norm_1": "attn_output_norm",
    "rms_norm_2": "ffn_norm",
    "rms_norm_3": "layer_output_norm",
}
PARTS = {
    "multi_head_attention.query": "attn_q",
    "multi_head_attention.key": "attn_k",
    "multi_head_attention.value": "attn_v",
    "multi_head_attention.linear": "attn_output",
}
PROJECTIONS = {"linear": "ffn_gate", "linear_v": "ffn_up", "linear_1": "ffn_down"}
CAP, THETA = 30.0, 10000.0


@dataclass(frozen=True)
class ToldByFolder(ToldByTensors):
    """Whether the token table is the output matrix: what ``config.json`` leaves out, names tell."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says, or the names of the parameters."""
        if config.get(self.name) is None:
            return "lm_head.weight" not in config.parameters()
        return super().read_config_json(config, known)


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model; early files have no factors: they are Grok 1's."""

    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    num_experts_per_tok: int = field(mixture.used_experts("num_experts_per_tok", default=2))
    moe_intermediate_size: int = mixture.dense_width()
    tie_word_embeddings: bool = field(
        ToldByFolder("tie_word_embeddings", ("output.weight",), absent=True)
    )
    attention_scale: float = real(
        "attn_output_multiplier", "attention.output_scale", FACTOR,
        default=decoder.root_of_head_dim, key_default=0.08838834764831845,
    )  # fmt: skip
    # The routers of published models stay far below their cap, and no implementation applies it.
    attn_logit_softcapping: float = real((), "attn_logit_softcapping", default=CAP, key_default=CAP)
    router_logit_softcapping: float = real(
        (), "router_logit_softcapping", default=CAP, key_default=CAP
    )
    final_logit_softcapping: float = real(
        (), "final_logit_softcapping", default=0.0, key_default=0.0, unsaid=True
    )
    logit_scale: float = real(
        "output_multiplier_scale", "logit_scale", FACTOR, default=0.5773502691896257,
        key_default=0.5773502691896257, unsaid=True,
    )  # fmt: skip
    activation: str = constant("gelu")
    rope: RopeConfig = field(Rope(("default",), theta=THETA))
    embedding_scale: float = real(
        "embedding_multiplier_scale", "embedding_scale", FACTOR, default=78.38367176906169,
        key_default=78.38367176906169, unsaid=True,
    )  # fmt: skip
    # What Grok 1 has alone.
    folders_theta: float = fixed(THETA, int(THETA), name="rope_theta", written=False)
    folders_cap: float = fixed(CAP, int(CAP), name="attn_logit_softcapping", written=False)
    folders_router_cap: float = fixed(CAP, int(CAP), name="router_logit_softcapping", written=False)
    folders_final_cap: None = fixed(None, name="final_logit_softcapping", written=False)
    folders_width: None = fixed(None, name="moe_intermediate_size", written=False)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of Grok 1."""
    yield from decoder.outside(
        c, embedding="transformer.in_out_embed", final="transformer.rms_norm"
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)
        yield from mixture.router(i, "router", layers=LAYERS)
        yield from mixture.each_expert(c, i, "moe", PROJECTIONS, layers=LAYERS)


def embed(g: Builder, c: Config, w: Weights) -> Value:
    """Return the rows of the token table times their factor."""
    return g.scale(g.embed(w.embedding(c)), c.embedding_scale)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, norm(g, c, w, a, f"{b}.attn_output_norm"))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    routing = experts.route(g, c, w, x, i)
    mixed = experts.gated_experts(g, c, w, x, i, routing, g.geglu)
    if w.has(f"{b}.ffn_up.weight"):
        dense = blocks.gated_mlp(g, c, w, x, i, g.geglu)
        mixed = g.scale(g.add(dense, mixed), math.sqrt(0.5))
    after = "layer_output_norm" if w.has(f"{b}.layer_output_norm.weight") else "post_ffw_norm"
    return g.add(h, norm(g, c, w, mixed, f"{b}.{after}"))


FAMILY = Family("grok", ("grok-1",), "", "Grok", Config, tensors, layer, embed)
