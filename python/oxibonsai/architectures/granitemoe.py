"""Granite 3 with experts: factors on embeddings, residuals and logits; a shared expert in some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.decoder import HeadDim
from oxibonsai.architectures.granite import Factors, embed
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import count, count_or_zero, field, fixed
from oxibonsai.architectures.schema.operations import Split
from oxibonsai.architectures.schema.tensors import Entry, Tensor
from oxibonsai.graph import Builder, RopeConfig, Value

SHARED, SHARED_KEY = "shared_intermediate_size", "expert_shared_feed_forward_length"


@dataclass(frozen=True, kw_only=True)
class Config(Factors, Mixture):
    """The fields of a model without a shared expert."""

    head_dim: int = field(HeadDim(written=False))
    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    moe_intermediate_size: int = mixture.dense_width()
    shared_intermediate_size: int = fixed(0, None, name=SHARED, written=False)
    attention_bias: bool = fixed(False, name="attention_bias")
    position_embedding_type: str = fixed(
        "rope", None, name="position_embedding_type", written=False
    )
    rope: RopeConfig = field(Rope(("default", "linear", "yarn"), interleaved=True, counted=True))


@dataclass(frozen=True, kw_only=True)
class SharedConfig(Config):
    """The fields of a model with a shared expert."""

    shared_intermediate_size: int = count_or_zero(SHARED, SHARED_KEY, default=0, unsaid=True)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; a folder has gate and up in one parameter."""
    yield from decoder.outside(c)
    ff, shared = c.moe_intermediate_size, c.shared_intermediate_size
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c))
        yield from mixture.router(i, "block_sparse_moe.router.layer")
        yield from pair(i, "block_sparse_moe", "_exps", Split((ff, ff), axis=1))
        if shared:
            yield from pair(i, "shared_mlp", "_shexp", Split((shared, shared)))


def pair(i: int, module: str, end: str, apart: Split) -> Iterator[Tensor]:
    """Yield gate and up, one parameter of a module that ``apart`` divides, and down."""
    stem, b = f"model.layers.{i}.{module}", f"blk.{i}.ffn"
    both = (f"{b}_gate{end}.weight", f"{b}_up{end}.weight")
    yield Tensor((f"{stem}.input_linear.weight",), both, (apart,))
    yield Tensor((f"{stem}.output_linear.weight",), (f"{b}_down{end}.weight",))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, g.scale(a, c.residual_scale))
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    routing = experts.route(g, c, w, x, i)
    y = experts.gated_experts(g, c, w, x, i, routing, g.swiglu)
    if c.shared_intermediate_size:
        y = experts.shared_expert(g, c, w, x, i, add=y)
    return g.add(h, g.scale(y, c.residual_scale))


SHARED_FAMILY = Family(
    "granitemoe", ("granitemoeshared",), "GraniteMoeShared", "Granite with experts", SharedConfig,
    tensors, layer, embed, owns_gguf=lambda keys: keys.count(SHARED_KEY) > 0,
)  # fmt: skip
FAMILY = Family(
    "granitemoe", ("granitemoe",), "GraniteMoe", "Granite with experts", Config, tensors, layer,
    embed,
)  # fmt: skip
