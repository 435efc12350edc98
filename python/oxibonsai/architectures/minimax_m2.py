"""MiniMax M2: q and k normalised over all heads at once, part of a head rotated, sigmoid routing.

Experts are chosen by their scores and a bias; their weights are of the scores alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import NUMBERED, Mixture, Scoring
from oxibonsai.architectures.olmoe import add_attention
from oxibonsai.architectures.rotary import PARTIAL, Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Implied, count, field
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

MODULE = "block_sparse_moe"


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    moe_intermediate_size: int = count(
        "intermediate_size", "expert_feed_forward_length", key_default=mixture.intermediate_size
    )
    scoring: str = field(Scoring("sigmoid", name="scoring_func"))
    rope: RopeConfig = field(Rope(("default",), counted=True, share_names=(PARTIAL,)))
    rotary_dim: int = field(Implied("rotary_dim", lambda known: known["rope"].rotary_dim))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, decoder.ATTENTION)
        yield from mixture.router(i, f"{MODULE}.gate")
        yield from mixture.selection_bias(i, f"{MODULE}.e_score_correction_bias", optional=False)
        yield from mixture.each_expert(c, i, f"{MODULE}.experts", NUMBERED)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = add_attention(g, c, w, i, h)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, add=h)


FAMILY = Family("minimax-m2", ("minimax_m2",), "MiniMaxM2", "MiniMax M2", Config, tensors, layer)
