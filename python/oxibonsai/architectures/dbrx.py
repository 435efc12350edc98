"""DBRX: LayerNorms without biases, clamped q, k and v in one tensor, experts in every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.decoder import HeadDim
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import LayerNormMixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    POSITIVE,
    Field,
    Fixed,
    Implied,
    Inside,
    Stated,
    count,
    field,
)
from oxibonsai.architectures.schema.operations import SplitAxis, Transpose
from oxibonsai.architectures.schema.tensors import Entry, Tensor
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.blocks"
NORMS = {"norm_attn_norm.norm_1": "attn_norm", "norm_attn_norm.norm_2": "attn_output_norm"}
PARTS = {
    "norm_attn_norm.attn.Wqkv": "attn_qkv",
    "norm_attn_norm.attn.out_proj": "attn_output",
}


@dataclass(frozen=True)
class Named(Inside):
    """A field of an object of ``config.json``, which has it under the usual name, too.

    Attributes:
        usual: The usual name.
    """

    usual: str = ""

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the object with the field, and the field beside it."""
        return {**super().write_config_json(value, c), self.usual: value}


@dataclass(frozen=True)
class PlainRope(Rope):
    """A rotary embedding of which ``config.json`` states the base of frequencies alone."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"rope_theta": value.theta}


def of_attention(described: Field) -> Any:
    """Return a field that ``config.json`` has among those of attention."""
    return field(Inside("attn_config", described))


def of_experts(described: Field) -> Any:
    """Return a field that ``config.json`` has among those of the experts."""
    return field(Inside("ffn_config", described))


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormMixture):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count("n_layers", also_written=("num_hidden_layers",))
    max_position_embeddings: int = count(
        "max_seq_len", "context_length", also_written=("max_position_embeddings",)
    )
    hidden_size: int = count("d_model", "embedding_length", also_written=("hidden_size",))
    intermediate_size: int = field(
        Named(
            "ffn_config", Stated(COUNT, ("ffn_hidden_size",), "feed_forward_length"),
            "intermediate_size",
        )
    )  # fmt: skip
    num_attention_heads: int = count(
        "n_heads", "attention.head_count", also_written=("num_attention_heads",)
    )
    num_key_value_heads: int = field(
        Named(
            "attn_config",
            Stated(
                COUNT, ("kv_n_heads",), "attention.head_count_kv",
                default=lambda known: known["num_attention_heads"],
                key_default=lambda known: known["num_attention_heads"],
            ),
            "num_key_value_heads",
        )
    )  # fmt: skip
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon()
    num_experts: int = of_experts(Stated(COUNT, ("moe_num_experts",), "expert_count"))
    num_experts_per_tok: int = of_experts(mixture.used_experts("moe_top_k"))
    moe_intermediate_size: int = mixture.dense_width()
    clamp_kqv: float = of_attention(
        Stated(
            POSITIVE, ("clip_qkv",), "attention.clamp_kqv", default=0.0, key_default=0.0,
            unsaid=True, none_is=0.0,
        )
    )  # fmt: skip
    activation: dict[str, str] = field(
        Inside("ffn_config", Fixed({"name": "silu"}, name="ffn_act_fn", written=False))
    )
    normalized: float = of_experts(Fixed(1.0, (1,), name="moe_normalize_expert_weights"))
    width_of_experts: int = of_experts(Implied("hidden_size", lambda known: known["hidden_size"]))
    rope: RopeConfig = field(Inside("attn_config", PlainRope(("default",))))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; the rows of an expert are its neurons, of ``w2`` too."""
    yield from decoder.outside(c, embedding="transformer.wte", final="transformer.norm_f")
    stacked = SplitAxis(c.num_experts)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)
        yield from mixture.router(i, "ffn.router.layer", layers=LAYERS)
        stem, b = f"{LAYERS}.{i}.ffn.experts.mlp", f"blk.{i}.ffn"
        yield Tensor((f"{stem}.w1",), (f"{b}_gate_exps.weight",), (stacked,))
        yield Tensor((f"{stem}.v1",), (f"{b}_up_exps.weight",), (stacked,))
        yield Tensor((f"{stem}.w2",), (f"{b}_down_exps.weight",), (stacked, Transpose()))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = mixture.add_attention(g, c, w, i, h)
    return mixture.add_experts(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_output_norm"), i, h)


FAMILY = Family("dbrx", ("dbrx",), "Dbrx", "DBRX", Config, tensors, layer)
