"""LFM2: short convolutions between gates, attention in some layers; experts in LFM2-MoE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.decoder import Constants, HeadDim
from oxibonsai.architectures.hybrid import (
    CONVOLUTION,
    FULL_ATTENTION,
    ByLayer,
    LayerTypes,
    of_attention,
)
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mamba2 import convolution
from oxibonsai.architectures.mixture import Experts, Scoring
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    EPSILON,
    Known,
    Stated,
    ToldByTensors,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, weight
from oxibonsai.graph import Builder, RopeConfig, Value

NORMS = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm"}
MLP = {"feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up"}
ATTENTION = {**decoder.QKV, "self_attn.out_proj": "attn_output"}
HEAD_NORMS = {"self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm"}
CONVOLUTIONS = {"conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj"}


@dataclass(frozen=True)
class Kinds(LayerTypes):
    """The kinds of layers, of which older configurations list the places of those that attend."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[str, ...]:
        """Return the kinds that ``config.json`` says."""
        stated, places = config.get("layer_types"), config.get("full_attn_idxs")
        if stated is None and isinstance(places, list):
            layers = range(known["num_hidden_layers"])
            stated = [FULL_ATTENTION if i in places else CONVOLUTION for i in layers]
        return self.read_list(config, known, stated)


@dataclass(frozen=True)
class Width(Stated):
    """The columns of the MLP: the stated number, or two thirds of it rounded up."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        width: int = super().read_config_json(config, known)
        if config.fields.get("block_auto_adjust_ff_dim", True) is not True:
            return width
        multiple = config.count(config.get("block_multiple_of"), "block_multiple_of")
        factor = config.fields.get("block_ffn_dim_multiplier", 1.0)
        width = int(2 * width / 3)
        if factor is not None:
            width = int(config.number(factor, "block_ffn_dim_multiplier") * width)
        return -(-width // multiple) * multiple

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"intermediate_size": value, "block_auto_adjust_ff_dim": False}


@dataclass(frozen=True)
class Tied(ToldByTensors):
    """Whether the token table is the output matrix, too; ``config.json`` has two names for it."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says."""
        stated = config.get("tie_embedding", self.name)
        return self.default if stated is None else config.flag(stated, self.name)

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return both fields of ``config.json``."""
        return {self.name: value, "tie_embedding": value}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, in the order of a file's keys."""

    num_hidden_layers: int = decoder.layer_count("num_hidden_layers")
    max_position_embeddings: int = count("max_position_embeddings", "context_length")
    hidden_size: int = count("hidden_size", "embedding_length")
    intermediate_size: int = field(
        Width(COUNT, ("block_ff_dim", "intermediate_size"), "feed_forward_length")
    )
    num_attention_heads: int = field(
        of_attention("num_attention_heads", "attention.head_count", listed=False)
    )
    vocab_size: int = decoder.vocabulary()
    conv_L_cache: int = count("conv_L_cache", "shortconv.l_cache")
    num_key_value_heads: int = field(
        of_attention(
            "num_key_value_heads", "attention.head_count_kv",
            lambda known: known["num_attention_heads"],
        )
    )  # fmt: skip
    head_dim: int = field(HeadDim(written=False, keyed=False))
    rms_norm_eps: float = real(
        "norm_eps", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-5
    )
    layer_norm_eps: float = constant(0.0)


@dataclass(frozen=True, kw_only=True)
class Config(Constants, Sizes, ByLayer):
    """The fields of a model."""

    layer_types: tuple[str, ...] = field(
        Kinds({FULL_ATTENTION: FULL_ATTENTION, CONVOLUTION: CONVOLUTION}, CONVOLUTION)
    )
    tie_word_embeddings: bool = field(
        Tied("tie_word_embeddings", ("output.weight",), absent=True, default=True)
    )
    rope: RopeConfig = field(Rope(("default",)))
    sliding_window: int = count_or_zero((), "attention.sliding_window", default=0, unsaid=True)
    conv_bias: bool = fixed(False, name="conv_bias")


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from outside(c)
    for i in range(c.num_hidden_layers):
        yield from operator(c, i)
        yield from decoder.matrices(i, MLP)


def outside(c: Config) -> Iterator[Tensor]:
    """Yield what stands before the layers and behind them."""
    yield weight("model.embed_tokens", "token_embd")
    yield norm("model.embedding_norm", "token_embd_norm")
    yield weight("lm_head", "output", optional=c.tie_word_embeddings)


def operator(c: Config, i: int) -> Iterator[Tensor]:
    """Yield the norms of a layer, and its attention or its convolution."""
    yield from decoder.norms(i, NORMS)
    if c.attends(i):
        yield from decoder.matrices(i, ATTENTION)
        yield from decoder.norms(i, HEAD_NORMS)
    else:
        yield from decoder.matrices(i, CONVOLUTIONS)
        yield from convolution(f"model.layers.{i}.conv.conv", f"blk.{i}.shortconv.conv")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = add_operator(g, c, w, i, h)
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


def add_operator(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return h and what attention or the convolution of layer i gives."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    return (add_attention if c.attends(i) else add_convolution)(g, c, w, x, i, h)


def add_convolution(g: Builder, c: Config, w: Weights, x: Value, i: int, h: Value) -> Value:
    """Return h and a convolution, of which thirds of one projection gate the input and the result."""
    b, hidden = f"blk.{i}.shortconv", c.hidden_size
    (parts,) = g.linear(x, w.matrix(f"{b}.in_proj", 3 * hidden, hidden))
    before, after, x = (g.select_columns(parts, n * hidden, hidden) for n in range(3))
    taps = w.floats(f"{b}.conv.weight", hidden, c.conv_L_cache)
    x = g.multiply(after, g.conv1d(g.multiply(before, x), taps))
    (h,) = g.linear(x, w.matrix(f"{b}.out_proj", hidden, hidden), add=h)
    return h


def add_attention(g: Builder, c: Config, w: Weights, x: Value, i: int, h: Value) -> Value:
    """Return h and the attention of x, whose queries and keys have norms over each head."""
    b, dim, eps = f"blk.{i}", c.head_dim, c.rms_norm_eps
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", dim), eps)
    q, k = g.rope(q, c.rope, dim), g.rope(k, c.rope, dim)
    a = blocks.attention(g, c, q, k, v, c.cached_layer(i), window=c.sliding_window)
    return blocks.attention_output(g, c, w, a, i, add=h)


def final_norm(g: Builder, c: Config, w: Weights, h: Value) -> Value:
    """Return the norm before the output matrix, which files call that of the embeddings."""
    return apply_norm(g, c, w, h, "token_embd_norm")


LFM2 = Family("lfm2", ("lfm2",), "Lfm2", "LFM2", Config, tensors, layer, final_norm=final_norm)


@dataclass(frozen=True, kw_only=True)
class MixedConfig(Experts, Config):
    """The fields of a model with experts in all but the first layers."""

    intermediate_size: int = count("intermediate_size", "feed_forward_length")
    first_dense_layers: int = count_or_zero("num_dense_layers", "leading_dense_block_count")
    scoring: str = field(Scoring("sigmoid"))
    norm_topk_prob: bool = fixed(True, name="norm_topk_prob")
    routed_scaling_factor: float = fixed(1.0, name="routed_scaling_factor")
    use_expert_bias: bool = fixed(True, name="use_expert_bias")


def mixed_tensors(c: MixedConfig) -> Iterator[Entry]:
    """Yield all tensors of a model with experts."""
    yield from outside(c)
    for i in range(c.num_hidden_layers):
        yield from operator(c, i)
        if i < c.first_dense_layers:
            yield from decoder.matrices(i, MLP)
            continue
        yield from mixture.router(i, "feed_forward.gate")
        yield from mixture.selection_bias(i, "feed_forward.expert_bias", optional=False)
        yield from mixture.each_expert(c, i, "feed_forward.experts", mixture.NUMBERED)


def mixed_layer(g: Builder, c: MixedConfig, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of a model with experts."""
    h = add_operator(g, c, w, i, h)
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    if i < c.first_dense_layers:
        return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    routing = experts.route(g, c, w, x, i, selection_bias=experts.selection_bias(c, w, i))
    return g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))


LFM2MOE = Family(
    "lfm2moe", ("lfm2_moe",), "Lfm2Moe", "LFM2", MixedConfig, mixed_tensors, mixed_layer,
    final_norm=final_norm,
)  # fmt: skip
