"""Falcon-H1: attention and Mamba 2 side by side in every layer; factors of the config in its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, hybrid, mamba2
from oxibonsai.architectures.decoder import Constants, RmsNormed
from oxibonsai.architectures.layers import blocks, mamba
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Scale, ScaleRows
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Checked,
    GgufKeys,
    Kind,
    Known,
    Stated,
    count,
    field,
    fixed,
    real,
    told_by_tensors,
)
from oxibonsai.architectures.schema.operations import OneWay, Operation
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, bias, norm, vector, weight
from oxibonsai.graph import Builder, RopeConfig, Value

PARTS = {
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}


def _number(config: ConfigJson, value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise config.fail(f"{name} is {value!r}, no number")
    return float(value)


def _numbers(config: ConfigJson, value: Any, name: str, length: int) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) != length:
        raise config.fail(f"{name} is {value!r}, not {length} numbers")
    return tuple(_number(config, v, name) for v in value)


FACTOR = Kind("f32", _number, lambda keys, key, default: default)


def factor(name: str) -> Any:
    """Return the field of a factor, which a file has in its weights."""
    return real(name, "", FACTOR, default=1.0, key_default=1.0)


def factors(name: str, length: int) -> Any:
    """Return the field of several factors, which a file has in its weights."""
    kind = Kind(
        "f32", lambda config, value, name: _numbers(config, value, name, length), FACTOR.of_gguf
    )
    ones = (1.0,) * length
    return real(name, "", kind, default=ones, key_default=ones)


@dataclass(frozen=True)
class NormBeforeGate:
    """Where the norm of a scan stands, which says nothing of a model that has none."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return False; UnsupportedError for a norm before the gate."""
        if known["mamba_rms_norm"] and config.get("mamba_norm_before_gate") not in (None, False):
            raise config.unsupported("mamba_norm_before_gate is not false")
        return False

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"mamba_norm_before_gate": value}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return False."""
        return False

    def write_gguf(self, value: bool, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class HeadFactor(Stated):
    """The factor of the output matrix, which must be that of the token table where they are one."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        value: float = super().read_config_json(config, known)
        if known["tie_word_embeddings"] and value != known["embedding_multiplier"]:
            raise config.unsupported(
                "one table is embedding and output matrix, but their factors differ; save the model "
                "with both"
            )
        return value


@dataclass(frozen=True, kw_only=True)
class Config(Constants, RmsNormed):
    """The fields of a model."""

    mamba_d_conv: int = count("mamba_d_conv", "ssm.conv_kernel")
    mamba_d_state: int = count("mamba_d_state", "ssm.state_size")
    mamba_n_groups: int = count("mamba_n_groups", "ssm.group_count")
    mamba_d_ssm: int = field(hybrid.InnerSize(stated=True, by_head=True))
    mamba_n_heads: int = field(
        Checked(
            Stated(COUNT, ("mamba_n_heads",), "ssm.time_step_rank"),
            lambda known, heads: hybrid.heads_problem(
                known["mamba_d_ssm"], heads, known["mamba_n_groups"]
            ),
        )
    )
    rope: RopeConfig = field(Rope(("default",)))
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    projectors_bias: bool = fixed(False, name="projectors_bias")
    mamba_proj_bias: bool = fixed(False, name="mamba_proj_bias")
    mamba_conv_bias: bool = field(hybrid.ConvolutionBias("mamba_conv_bias"))
    mamba_rms_norm: bool = told_by_tensors("mamba_rms_norm", "blk.0.ssm_norm.weight")
    mamba_norm_before_gate: bool = field(NormBeforeGate())
    time_step_limit: list[Any] = field(hybrid.TIME_STEP_LIMIT)
    embedding_multiplier: float = factor("embedding_multiplier")
    lm_head_multiplier: float = field(
        HeadFactor(FACTOR, ("lm_head_multiplier",), "", default=1.0, key_default=1.0)
    )
    attention_in_multiplier: float = factor("attention_in_multiplier")
    attention_out_multiplier: float = factor("attention_out_multiplier")
    key_multiplier: float = factor("key_multiplier")
    ssm_in_multiplier: float = factor("ssm_in_multiplier")
    ssm_out_multiplier: float = factor("ssm_out_multiplier")
    mlp_multipliers: tuple[float, ...] = factors("mlp_multipliers", 2)
    ssm_multipliers: tuple[float, ...] = factors("ssm_multipliers", 5)


def scaled(*numbers: float) -> Operation:
    """Return the step that multiplies a weight; the factors of a config that a file makes are 1."""
    return OneWay(tuple(Scale(number) for number in numbers))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield weight("model.embed_tokens", "token_embd", scaled(c.embedding_multiplier))
    yield norm("model.final_layernorm", "output_norm")
    tied = c.tie_word_embeddings
    yield weight("lm_head", "output", scaled(c.lm_head_multiplier), optional=tied)
    states = c.mamba_n_groups * c.mamba_d_state
    rows = (c.mamba_d_ssm, c.mamba_d_ssm, states, states, c.mamba_n_heads)
    inward = OneWay((Scale(c.ssm_in_multiplier), ScaleRows(c.ssm_multipliers, rows)))
    attends, (gate, down) = c.attention_in_multiplier, c.mlp_multipliers
    operations = {
        "attn_q": (scaled(attends),),
        "attn_k": (scaled(c.key_multiplier, attends),),
        "attn_v": (scaled(attends),),
        "attn_output": (scaled(c.attention_out_multiplier),),
        "ffn_gate": (scaled(gate),),
        "ffn_down": (scaled(down),),
    }
    for i in range(c.num_hidden_layers):
        p, b = f"model.layers.{i}", f"blk.{i}"
        yield norm(f"{p}.input_layernorm", f"{b}.attn_norm")
        # as llama.cpp has it, where others end in .weight
        yield vector(f"{p}.pre_ff_layernorm.weight", f"{b}.ffn_norm")
        yield from decoder.matrices(i, {**decoder.ATTENTION, **PARTS}, operations)
        yield from mamba2.scan(c, f"{p}.mamba", b, (inward,), normed=c.mamba_rms_norm)
        yield bias(f"{p}.mamba.conv1d", f"{b}.ssm_conv1d", optional=not c.mamba_conv_bias)
        yield weight(f"{p}.mamba.out_proj", f"{b}.ssm_out", scaled(c.ssm_out_multiplier))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    h = blocks.attention_output(g, c, w, blocks.rotated_attention(g, c, w, x, i), i, add=h)
    h = mamba.mamba2_scan(g, c, w, i, x, add=h, normed=c.mamba_rms_norm)
    x = g.rms_norm(h, w.vector(f"blk.{i}.ffn_norm", c.hidden_size), c.rms_norm_eps)
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family("falcon-h1", ("falcon_h1",), "FalconH1", "Falcon-H1", Config, tensors, layer)
