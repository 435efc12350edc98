"""Qwen3-Next and Qwen3.5 with experts: Qwen3.5's layers with mixtures for feed-forward parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture, qwen35
from oxibonsai.architectures.decoder import Constants, RmsNormed, Sizes
from oxibonsai.architectures.drafting import DraftingLayers
from oxibonsai.architectures.layers import experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.gated_delta import delta_rule, linear_attention
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Experts
from oxibonsai.architectures.qwen35 import NORMS, DeltaRules, gated_attention, sectioned_rope
from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Fixed,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.operations import (
    Concatenate,
    Expect,
    MergeAxes,
    Split,
    SplitAxis,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Either, Entry, LeftOut, Tensor, vector, weight
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.sectioned_rope import Sections
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True)
class ExpertWidth(Stated):
    """The width of feed-forward parts, which is that of an expert; the experts' own field states it."""

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class DenseWidth:
    """The width of layers without experts, of which there are none; 0: nothing is stated."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        name = "intermediate_size"
        stated = config.get(name)
        return 0 if stated is None else config.count(stated, name)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, if there is a value."""
        return {"intermediate_size": value} if value else {}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.count("feed_forward_length")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key, if there is a value."""
        return {"feed_forward_length": (value, "u32")} if value else {}


def _shared_width() -> Any:
    return count("shared_expert_intermediate_size", "expert_shared_feed_forward_length")


@dataclass(frozen=True, kw_only=True)
class SharedSizes(Sizes):
    """The widths that a file states before the epsilon of norms."""

    shared_intermediate_size: int = _shared_width()
    dense_intermediate_size: int = field(DenseWidth())


@dataclass(frozen=True, kw_only=True)
class Config(DeltaRules, Constants, Experts, RmsNormed, SharedSizes):
    """The fields of Qwen3.5 with experts."""

    intermediate_size: int = field(
        ExpertWidth(COUNT, ("moe_intermediate_size",), "expert_feed_forward_length")
    )
    shared_intermediate_size: int = _shared_width()
    num_nextn_predict_layers: int = field(DraftingLayers(lambda names, layers: 0))  # left out
    norm_topk_prob: bool = fixed(True, name="norm_topk_prob")
    decoder_sparse_step: int = fixed(1, name="decoder_sparse_step")
    mlp_only_layers: list[int] = field(Fixed([], (None,), name="mlp_only_layers"))
    use_sliding_window: bool = fixed(False, name="use_sliding_window")


@dataclass(frozen=True, kw_only=True)
class NextConfig(Config):
    """The fields of Qwen3-Next, which sees no images."""

    rope: RopeConfig = field(sectioned_rope(()))
    sections: tuple[int, ...] = field(Sections(()))
    tiled_heads: bool = constant(False)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield from decoder.outside(c, Add(1.0))
    yield LeftOut("mtp.*")
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, Add(1.0))
        yield from _mixture(c, i)
        if c.attends(i):
            yield from qwen35.attention_tensors(i)
        else:
            yield from qwen35.projections(c, i) if c.tiled_heads else _joined(c, i)
            yield from qwen35.delta_tensors(c, i)


def _mixture(c: Config, i: int) -> Iterator[Entry]:
    """Yield what a layer's feed-forward part has; folders have its experts one by one or stacked."""
    p, b, ff = f"model.layers.{i}.mlp", f"blk.{i}.ffn", c.moe_intermediate_size
    yield from mixture.router(i, "mlp.gate")
    stacked = (
        Tensor(
            (f"{p}.experts.gate_up_proj",), (f"{b}_gate_exps.weight", f"{b}_up_exps.weight"),
            (Split((ff, ff), axis=1),),
        ),
        Tensor(
            (f"{p}.experts.down_proj",), (f"{b}_down_exps.weight",),
            (Expect((c.num_experts, c.hidden_size, ff)),),
        ),
    )  # fmt: skip
    yield Either((tuple(mixture.each_expert(c, i)), stacked))
    yield from decoder.matrices(i, mixture.shared_names("mlp.shared_expert"))
    gate = Expect((1, c.hidden_size))
    yield vector(f"{p}.shared_expert_gate.weight", f"{b}_gate_inp_shexp.weight", gate)


def _joined(c: Config, i: int) -> Iterator[Entry]:
    """Yield the projections of Qwen3-Next, where those of each key head stand together."""
    p, b, heads = f"model.layers.{i}.linear_attn", f"blk.{i}", c.linear_num_key_heads
    keys, values = c.gated_delta.key_width, c.gated_delta.value_width
    parts = (keys, keys, values, values)
    yield Tensor(
        (f"{p}.in_proj_qkvz.weight",), (f"{b}.attn_qkv.weight", f"{b}.attn_gate.weight"),
        (
            SplitAxis(heads),
            Split(tuple(part // heads for part in parts), axis=1),
            MergeAxes(heads),
            Concatenate(parts[:3], others=1),
        ),
    )  # fmt: skip
    yield weight(f"{p}.in_proj_ba", f"{b}.ssm_ba")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of Qwen3.5."""
    mix = gated_attention if c.attends(i) else linear_attention
    return _feed_forward(g, c, w, i, mix(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), h))


def next_layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of Qwen3-Next."""
    mix = gated_attention if c.attends(i) else _grouped_attention
    return _feed_forward(g, c, w, i, mix(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), h))


def drafting_layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after a layer that predicts further tokens, which attends."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    return _feed_forward(g, c, w, i, gated_attention(g, c, w, i, x, h))


def _grouped_attention(
    g: Builder, c: Config, w: Weights, layer: int, x: Value, residual: Value
) -> Value:
    """Add a gated delta rule whose beta and alpha are one matrix, a key head's value heads neighbours."""
    d, b, hidden = c.gated_delta, f"blk.{layer}", c.hidden_size
    heads = d.num_value_heads
    qkv, z, both = g.linear(
        x,
        w.matrix(f"{b}.attn_qkv", 2 * d.key_width + d.value_width, hidden),
        w.matrix(f"{b}.attn_gate", d.value_width, hidden),
        w.matrix(f"{b}.ssm_ba", 2 * heads, hidden),
    )
    each = heads // d.num_key_heads
    beta = g.select_columns(both, 0, each, 2 * each)
    alpha = g.select_columns(both, each, each, 2 * each)
    return delta_rule(g, c, w, layer, (qkv, z, beta, alpha), residual, tiled=False)


def _feed_forward(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    b = f"blk.{i}"
    x = norm(g, c, w, h, f"{b}.post_attention_norm")
    routing = experts.route(g, c, w, x, i)
    mixed = experts.gated_experts(g, c, w, x, i, routing, g.swiglu)
    (gate,) = g.linear(x, w.row(f"{b}.ffn_gate_inp_shexp", c.hidden_size))
    shared = g.gate_rows(experts.shared_expert(g, c, w, x, i), gate)
    return g.add(h, g.add(mixed, shared))


QWEN3NEXT = Family(
    "qwen3next", ("qwen3_next",), "Qwen3Next", "Qwen3-Next", NextConfig, tensors, next_layer,
    embed_tokens_and_images, spelled=qwen35.own_name, drafting_layer=drafting_layer,
)  # fmt: skip
QWEN35MOE = Family(
    "qwen35moe", ("qwen3_5_moe_text",), "Qwen3_5Moe", "Qwen3.5 with experts", Config, tensors, layer,
    embed_tokens_and_images, spelled=qwen35.own_name, drafting_layer=drafting_layer,
    wrapper=Wrapper(("qwen3_5_moe",)),
)  # fmt: skip
