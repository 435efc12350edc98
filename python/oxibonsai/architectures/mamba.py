"""Mamba and Falcon Mamba: selective scans instead of attention; no positions, no feed-forward part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.hybrid import WithoutAttention
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.mamba import mamba_scan
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mamba2 import Sizes, convolution
from oxibonsai.architectures.schema.arithmetic import NegativeExp
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    GgufKeys,
    Known,
    Stated,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, bias, norm, vector, weight
from oxibonsai.graph import Builder, Value

NORMED = "ssm.dt_b_c_rms"


@dataclass(frozen=True)
class InnerSize:
    """The columns of a scan, which transformers computes of ``expand``."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("intermediate_size"), "intermediate_size")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``, of whole multiples of the hidden size."""
        expand = value // c.hidden_size
        return {"expand": expand, "intermediate_size": expand * c.hidden_size}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("ssm.inner_size")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"ssm.inner_size": (value, "u32")}


@dataclass(frozen=True)
class TimeStepRank(Stated):
    """The columns that time steps are made of: by default a sixteenth of the hidden size."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        stated = config.get(*self.names)
        if stated is None or stated == "auto":
            return -(-int(known["hidden_size"]) // 16)
        return config.count(stated, self.names[0])


@dataclass(frozen=True, kw_only=True)
class Config(WithoutAttention, Sizes):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    mamba_d_ssm: int = field(InnerSize())
    mamba_dt_rank: int = field(TimeStepRank(COUNT, ("time_step_rank",), "ssm.time_step_rank"))
    normed: bool = fixed(False, key=NORMED, kind="bool")
    mixer_rms_eps: float = fixed(1e-6, name="mixer_rms_eps", written=False)


@dataclass(frozen=True, kw_only=True)
class FalconConfig(Config):
    """The fields of a model whose time steps, b and c have norms without weights."""

    normed: bool = fixed(True, key=NORMED, kind="bool")
    mixer_rms_eps: float = fixed(1e-6, name="mixer_rms_eps")  # no file has it


def scan(module: str, b: str, *, biased: bool) -> Iterator[Tensor]:
    """Yield the tensors of a layer of Mamba 1.

    Args:
        module: The layer's scan in a folder.
        b: What the names of the layer's tensors begin with.
        biased: Whether the convolution has a bias.
    """
    yield weight(f"{module}.in_proj", f"{b}.ssm_in")
    yield from convolution(f"{module}.conv1d", f"{b}.ssm_conv1d")
    yield bias(f"{module}.conv1d", f"{b}.ssm_conv1d", optional=not biased)
    yield weight(f"{module}.x_proj", f"{b}.ssm_x")
    yield weight(f"{module}.dt_proj", f"{b}.ssm_dt")
    yield bias(f"{module}.dt_proj", f"{b}.ssm_dt")
    yield vector(f"{module}.A_log", f"{b}.ssm_a", NegativeExp())
    yield vector(f"{module}.D", f"{b}.ssm_d")
    yield weight(f"{module}.out_proj", f"{b}.ssm_out")


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="backbone.embeddings", final="backbone.norm_f")
    for i in range(c.num_hidden_layers):
        yield norm(f"backbone.layers.{i}.norm", f"blk.{i}.attn_norm")
        yield from scan(f"backbone.layers.{i}.mixer", f"blk.{i}", biased=c.use_conv_bias)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    return mamba_scan(g, c, w, i, x, add=h, eps_without_weights=c.normed * c.mixer_rms_eps)


FALCON_MAMBA = Family(
    "mamba", ("falcon_mamba",), "FalconMamba", "Falcon Mamba", FalconConfig, tensors, layer,
    owns_gguf=lambda keys: keys.flag(NORMED, False),
)  # fmt: skip
MAMBA = Family("mamba", ("mamba",), "Mamba", "Mamba", Config, tensors, layer)
