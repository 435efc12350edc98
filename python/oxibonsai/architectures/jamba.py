"""Jamba: Mamba 1 and some layers of attention without positions; experts in some feed-forward parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, hybrid, mamba
from oxibonsai.architectures.decoder import Constants, HeadDim
from oxibonsai.architectures.hybrid import FULL_ATTENTION, MAMBA, ByLayer, LayerTypes
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.mamba import mamba_scan
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    EPSILON,
    GgufKeys,
    Known,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import Stack
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Either, Entry, Tensor, vector
from oxibonsai.graph import Builder, RopeConfig, Value

NORMS = {"input_layernorm": "attn_norm", "pre_ff_layernorm": "ffn_norm"}
SCAN_NORMS = {f"mamba.{part}_layernorm": f"ssm_{part}_norm" for part in ("dt", "b", "c")}
MLP = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def every(config: ConfigJson, name: str, layers: int) -> tuple[bool, ...]:
    """Return which layers come every ``NAME_period`` from ``NAME_offset`` on."""
    period = config.count(config.get(f"{name}_period"), f"{name}_period")
    offset = config.get(f"{name}_offset")
    if type(offset) is not int or not 0 <= offset < period:
        raise config.fail(f"{name}_offset is {offset!r}, no count below {period}")
    return tuple(i % period == offset for i in range(layers))


def period_and_offset(name: str, chosen: Sequence[bool]) -> dict[str, Any]:
    """Return the fields of layers that come at equal distances; of others, any."""
    layers = [i for i, wanted in enumerate(chosen) if wanted]
    if not layers:
        period, offset = len(chosen) + 1, len(chosen)
    else:
        distance = layers[1] - layers[0] if len(layers) > 1 else len(chosen)
        period, offset = max(distance, layers[0] + 1), layers[0]
    return {f"{name}_period": period, f"{name}_offset": offset}


@dataclass(frozen=True)
class Kinds(LayerTypes):
    """The kinds of layers, of which ``config.json`` says the distances of those that attend."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[str, ...]:
        """Return the kinds that ``config.json`` says."""
        attending = every(config, "attn_layer", known["num_hidden_layers"])
        return tuple(FULL_ATTENTION if attends else MAMBA for attends in attending)

    def write_config_json(self, value: tuple[str, ...], c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return period_and_offset("attn_layer", [kind == FULL_ATTENTION for kind in value])


@dataclass(frozen=True)
class MixingLayers:
    """Whether each layer has experts, which a file shows by its tensors."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return what ``config.json`` says; where there is one expert, no layer has any."""
        layers: int = known["num_hidden_layers"]
        if known["num_experts"] == 1:
            return (False,) * layers
        return every(config, "expert_layer", layers)

    def write_config_json(self, value: tuple[bool, ...], c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return period_and_offset("expert_layer", value)

    def read_gguf(self, keys: Keys, known: Known) -> tuple[bool, ...]:
        """Return which layers have a router."""
        routers = (f"blk.{i}.ffn_gate_inp.weight" for i in range(known["num_hidden_layers"]))
        return tuple(known["num_experts"] > 1 and name in keys.tensor_names for name in routers)

    def write_gguf(self, value: tuple[bool, ...], c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class NumExperts:
    """The number of experts; 1: there are none to choose from."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("num_local_experts", "num_experts"), "num_experts")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"num_experts": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return max(1, keys.count("expert_count"))

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"expert_count": (value, "u32")}


@dataclass(frozen=True)
class UsedExperts:
    """The experts of a token, which say nothing where there is one."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("num_experts_per_tok"), "num_experts_per_tok")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"num_experts_per_tok": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        if (total := known["num_experts"]) == 1:
            keys.get("expert_used_count")
            return 1
        if (used := keys.integer("expert_used_count")) > total:
            raise keys.fail(f"{used} experts of a token are more than {total} experts")
        return used

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"expert_used_count": (value, "u32")}


def _feed_forward(known: Known) -> int:
    return int(known["intermediate_size"])


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, in the order of a file's keys."""

    num_hidden_layers: int = decoder.layer_count("num_hidden_layers")
    max_position_embeddings: int = count("max_position_embeddings", "context_length")
    hidden_size: int = count("hidden_size", "embedding_length")
    intermediate_size: int = count("intermediate_size", "feed_forward_length")
    num_attention_heads: int = field(
        hybrid.of_attention("num_attention_heads", "attention.head_count", listed=False)
    )
    vocab_size: int = decoder.vocabulary()
    mamba_d_conv: int = count("mamba_d_conv", "ssm.conv_kernel")
    mamba_d_ssm: int = field(hybrid.InnerSize())
    mamba_d_state: int = count("mamba_d_state", "ssm.state_size")
    mamba_dt_rank: int = field(mamba.TimeStepRank(COUNT, ("mamba_dt_rank",), "ssm.time_step_rank"))
    num_experts: int = field(NumExperts())
    num_experts_per_tok: int = field(UsedExperts())
    moe_intermediate_size: int = count(
        (), "expert_feed_forward_length", default=_feed_forward, key_default=_feed_forward,
        unsaid=True,
    )  # fmt: skip
    num_key_value_heads: int = field(
        hybrid.of_attention(
            "num_key_value_heads", "attention.head_count_kv",
            lambda known: known["num_attention_heads"],
        )
    )  # fmt: skip
    head_dim: int = field(HeadDim(written=False, keyed=False))
    rms_norm_eps: float = real(
        "rms_norm_eps", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-6
    )
    layer_norm_eps: float = constant(0.0)


@dataclass(frozen=True, kw_only=True)
class Config(Constants, Sizes, ByLayer):
    """The fields of a model."""

    layer_types: tuple[str, ...] = field(Kinds({}, MAMBA))
    mixing_layers: tuple[bool, ...] = field(MixingLayers())
    rope: RopeConfig = field(hybrid.NoPositions())
    activation: str = fixed("silu", name="hidden_act")
    mamba_proj_bias: bool = fixed(False, name="mamba_proj_bias")
    mamba_conv_bias: bool = field(hybrid.ConvolutionBias("mamba_conv_bias"))

    @property
    def experts(self) -> ExpertsConfig | None:
        """Return the experts, whose weights are their probabilities among all; None: there are none."""
        if self.num_experts == 1:
            return None
        return ExpertsConfig(
            self.num_experts, self.num_experts_per_tok, self.moe_intermediate_size, normalize=False
        )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, final="model.final_layernorm")
    for i in range(c.num_hidden_layers):
        p, b = f"model.layers.{i}", f"blk.{i}"
        yield from decoder.norms(i, NORMS)
        if c.attends(i):
            yield from decoder.matrices(i, decoder.ATTENTION)
        else:
            yield from mamba.scan(f"{p}.mamba", b, biased=c.mamba_conv_bias)
            yield from decoder.norms(i, SCAN_NORMS)
        yield from feed_forward(c, i)


def feed_forward(c: Config, i: int) -> Iterator[Entry]:
    """Yield the MLP of a layer, which some folders call its only expert, or its experts."""
    module, b = f"model.layers.{i}.feed_forward", f"blk.{i}"
    if c.mixing_layers[i]:
        yield vector(f"{module}.router.weight", f"{b}.ffn_gate_inp.weight")
        for part, tensor in MLP.items():
            names = (f"{module}.experts.{e}.{part}.weight" for e in range(c.num_experts))
            yield Tensor(tuple(names), (f"{b}.{tensor}_exps.weight",), (Stack(c.num_experts),))
        return
    spellings = ("feed_forward", "feed_forward.experts.0")
    yield Either(
        tuple(
            tuple(decoder.matrices(i, {f"{spelled}.{part}": t for part, t in MLP.items()}))
            for spelled in spellings
        )
    )


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    if c.attends(i):
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        a = blocks.attention(g, c, q, k, v, c.cached_layer(i))
        h = blocks.attention_output(g, c, w, a, i, add=h)
    else:
        h = mamba_scan(g, c, w, i, x, add=h, normed=True)
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    if not c.mixing_layers[i]:
        return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    routing = experts.route(g, c, w, x, i)
    return g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))


FAMILY = Family("jamba", ("jamba",), "Jamba", "Jamba", Config, tensors, layer)
