"""Qwen3 with experts (30B-A3B, 235B-A22B, Coder): Qwen3's attention, then experts in every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture, qwen3
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import Fixed, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    norm_topk_prob: bool = fixed(True, name="norm_topk_prob")
    decoder_sparse_step: int = fixed(1, name="decoder_sparse_step")
    mlp_only_layers: list[int] = field(Fixed([], (None,), name="mlp_only_layers"))
    attention_bias: bool = fixed(False, name="attention_bias")
    use_sliding_window: bool = fixed(False, name="use_sliding_window")
    rope: RopeConfig = field(Rope(("default", "linear", "dynamic", "yarn")))


def without_experts(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model but its experts."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, decoder.ATTENTION)
        yield from mixture.router(i, "mlp.gate")


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from without_experts(c)
    for i in range(c.num_hidden_layers):
        yield from mixture.each_expert(c, i)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = qwen3.add_attention(g, c, w, i, h)
    return mixture.add_experts(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, h)


FAMILY = Family(
    "qwen3moe", ("qwen3_moe",), "Qwen3Moe", "Qwen3 with experts", Config, tensors, layer,
    embed_tokens_and_images,
)  # fmt: skip
