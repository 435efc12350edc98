"""Granite 4: Mamba 2 and some layers of attention, with Granite's factors; experts in some models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder, granitemoe, hybrid, mamba2, mixture
from oxibonsai.architectures.decoder import Constants, HeadDim, RmsNormed
from oxibonsai.architectures.granite import Divisor, Factors, embed
from oxibonsai.architectures.hybrid import FULL_ATTENTION, MAMBA, ByLayer, LayerTypes
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.mamba import mamba2_scan
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    COUNT_OR_ZERO,
    FACTOR,
    Checked,
    GgufKeys,
    Known,
    Stated,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.operations import Split
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, bias, weight
from oxibonsai.graph import Builder, RopeConfig, Value

POSITIONS = "position_embedding_type"
KINDS = {
    "attention": FULL_ATTENTION, "full_attention": FULL_ATTENTION,
    "mamba": MAMBA, "linear_attention": MAMBA,
}  # fmt: skip


@dataclass(frozen=True)
class Context(Stated):
    """The longest text; where nothing has positions, none is too long."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        rotated = config.get(POSITIONS) == "rope"
        return super().read_config_json(config, known) if rotated else hybrid.ENDLESS


@dataclass(frozen=True)
class FeedForward:
    """The columns of an expert, or of the only feed-forward part."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        mixed = config.get("num_local_experts") not in (None, 0)
        name = "intermediate_size" if mixed else "shared_intermediate_size"
        return config.count(config.get(name), name)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"intermediate_size": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("feed_forward_length")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"feed_forward_length": (value, "u32")}


@dataclass(frozen=True)
class SharedWidth(mixture.OfExperts):
    """The columns of the expert that all tokens share; without experts, of the only part."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.names[0]: c.intermediate_size if c.experts is None else value}


@dataclass(frozen=True)
class Rotated:
    """Whether attention has positions."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says."""
        stated = config.get(POSITIONS)
        if stated not in (None, "nope", "rope"):
            raise config.unsupported(f"{POSITIONS} is {stated!r}; known are 'nope' and 'rope'")
        return bool(stated == "rope")

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {POSITIONS: "rope" if value else "nope"}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return the value that a file says."""
        return keys.flag("rope.scaling.finetuned", True)

    def write_gguf(self, value: bool, c: Any) -> GgufKeys:
        """Return the key."""
        return {"rope.scaling.finetuned": (value, "bool")}


@dataclass(frozen=True)
class RopeIfRotated(Rope):
    """The rotary embedding, of no dims where attention has no positions."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = super().read_config_json(config, known)
        return rope if known["rotated"] else rope.without()

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        return super().write_config_json(replace(value, rotary_dim=c.head_dim), c)

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys describe."""
        rope = super().read_gguf(keys, known)
        return rope if known["rotated"] else rope.without()


@dataclass(frozen=True, kw_only=True)
class Sizes(RmsNormed):
    """The sizes of a model, in the order of a file's keys."""

    max_position_embeddings: int = field(
        Context(COUNT, ("max_position_embeddings",), "context_length")
    )
    intermediate_size: int = field(FeedForward())
    num_key_value_heads: int = field(
        hybrid.of_attention(
            "num_key_value_heads", "attention.head_count_kv",
            lambda known: known["num_attention_heads"],
        )
    )  # fmt: skip
    head_dim: int = field(HeadDim(written=False))
    num_experts: int = field(
        Stated(
            COUNT_OR_ZERO, ("num_local_experts",), "expert_count", default=0, key_default=0,
            unsaid=True,
        )
    )  # fmt: skip
    num_experts_per_tok: int = field(
        Checked(
            mixture.OfExperts(COUNT, ("num_experts_per_tok",), "expert_used_count"),
            mixture.used_problem,
        )
    )
    moe_intermediate_size: int = mixture.dense_width()
    shared_intermediate_size: int = field(
        SharedWidth(
            COUNT, ("shared_intermediate_size",), "expert_shared_feed_forward_length", needed=False
        )
    )
    mamba_d_conv: int = count("mamba_d_conv", "ssm.conv_kernel")
    mamba_d_state: int = count("mamba_d_state", "ssm.state_size")
    mamba_n_groups: int = count("mamba_n_groups", "ssm.group_count")
    mamba_d_ssm: int = field(hybrid.InnerSize(by_head=True))
    mamba_n_heads: int = field(
        Checked(
            Stated(COUNT, ("mamba_n_heads",), "ssm.time_step_rank"),
            lambda known, heads: hybrid.heads_problem(
                known["mamba_d_ssm"], heads, known["mamba_n_groups"]
            ),
        )
    )
    rotated: bool = field(Rotated())
    rope: RopeConfig = field(RopeIfRotated(("default",), interleaved=True))


@dataclass(frozen=True, kw_only=True)
class Config(Factors, Constants, Sizes, ByLayer):
    """The fields of a model."""

    layer_types: tuple[str, ...] = field(
        LayerTypes(KINDS, MAMBA, ("layer_types", "layers_block_type"))
    )
    tie_word_embeddings: bool = decoder.tied(True)
    logit_scale: float = field(
        Divisor(FACTOR, ("logits_scaling",), "logit_scale", default=1.0, key_default=1.0)
    )
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mamba_proj_bias: bool = fixed(False, name="mamba_proj_bias")
    mamba_conv_bias: bool = field(hybrid.ConvolutionBias("mamba_conv_bias"))
    time_step_limit: list[Any] = field(hybrid.TIME_STEP_LIMIT)

    @property
    def experts(self) -> ExpertsConfig | None:
        """Return the sizes of the experts; None: there are none."""
        if self.num_experts == 0:
            return None
        return ExpertsConfig(
            self.num_experts, self.num_experts_per_tok, self.moe_intermediate_size,
            shared_intermediate_size=self.shared_intermediate_size,
        )  # fmt: skip


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        p, b = f"model.layers.{i}", f"blk.{i}"
        yield from decoder.norms(i, decoder.NORMS)
        if c.attends(i):
            yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c))
        else:
            yield from mamba2.scan(c, f"{p}.mamba", b)
            yield bias(f"{p}.mamba.conv1d", f"{b}.ssm_conv1d", optional=not c.mamba_conv_bias)
            yield weight(f"{p}.mamba.out_proj", f"{b}.ssm_out")
        yield from feed_forward(c, i)


def feed_forward(c: Config, i: int) -> Iterator[Tensor]:
    """Yield the MLP of a layer, or its experts; a folder has gate and up in one parameter."""
    ff, shared = c.intermediate_size, c.shared_intermediate_size
    if c.experts is None:
        yield from granitemoe.pair(i, "shared_mlp", "", Split((ff, ff)))
        return
    yield from mixture.router(i, "block_sparse_moe.router.layer")
    yield from granitemoe.pair(i, "block_sparse_moe", "_exps", Split((ff, ff), axis=1))
    if shared:
        yield from granitemoe.pair(i, "shared_mlp", "_shexp", Split((shared, shared)))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    x = attention(g, c, w, x, i) if c.attends(i) else mamba2_scan(g, c, w, i, x)
    h = g.add(h, g.scale(x, c.residual_scale))
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return g.add(h, g.scale(feed(g, c, w, x, i), c.residual_scale))


def attention(g: Builder, c: Config, w: Weights, x: Value, i: int) -> Value:
    """Return the attention of x, which may have no positions."""
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    if c.rotated:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    return blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, c.cached_layer(i)), i)


def feed(g: Builder, c: Config, w: Weights, x: Value, i: int) -> Value:
    """Return what the MLP of layer i, or its experts, make of x."""
    if c.experts is None:
        return blocks.gated_mlp(g, c, w, x, i, g.swiglu)
    routing = experts.route(g, c, w, x, i)
    y = experts.gated_experts(g, c, w, x, i, routing, g.swiglu)
    return experts.shared_expert(g, c, w, x, i, add=y) if c.shared_intermediate_size else y


FAMILY = Family(
    "granitehybrid", ("granitemoehybrid",), "GraniteMoeHybrid", "Granite 4", Config, tensors, layer,
    embed,
)  # fmt: skip
