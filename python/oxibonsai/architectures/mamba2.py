"""Mamba 2: state space layers whose heads keep a matrix each; no attention, no positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, hybrid
from oxibonsai.architectures.hybrid import MAMBA, WithoutAttention
from oxibonsai.architectures.layers import mamba
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.arithmetic import NegativeExp
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    EPSILON,
    Checked,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import MergeAxes, Operation, SplitAxis
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, bias, norm, vector, weight
from oxibonsai.graph import Builder, Value


@dataclass(frozen=True)
class InnerSize:
    """The columns of a scan, of which ``config.json`` states heads and the width of each."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        heads = config.count(config.get("num_heads"), "num_heads")
        return heads * config.count(config.get("head_dim"), "head_dim")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``; transformers wants whole multiples of the hidden size."""
        expand = value // c.hidden_size
        return {"expand": expand, "head_dim": c.hidden_size * expand // c.mamba_n_heads}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("ssm.inner_size")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"ssm.inner_size": (value, "u32")}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, in the order of a file's keys."""

    max_position_embeddings: int = hybrid.endless()
    hidden_size: int = count("hidden_size", "embedding_length")
    intermediate_size: int = fixed(0, key="feed_forward_length", kind="u32")
    num_attention_heads: int = fixed(0, key="attention.head_count", kind="u32")
    num_hidden_layers: int = decoder.layer_count("num_hidden_layers")
    vocab_size: int = decoder.vocabulary()
    mamba_d_conv: int = count("conv_kernel", "ssm.conv_kernel")
    mamba_d_state: int = count("state_size", "ssm.state_size")
    rms_norm_eps: float = real(
        "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-5
    )
    layer_norm_eps: float = constant(0.0)
    activation: str = fixed("silu", name="hidden_act")
    use_bias: bool = fixed(False, name="use_bias")
    use_conv_bias: bool = field(hybrid.ConvolutionBias("use_conv_bias"))

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Return the kind of each layer."""
        return (MAMBA,) * self.num_hidden_layers


@dataclass(frozen=True, kw_only=True)
class Config(WithoutAttention, Sizes):
    """The fields of a model."""

    mamba_d_ssm: int = field(InnerSize())
    mamba_n_heads: int = count("num_heads", "ssm.time_step_rank")
    mamba_n_groups: int = field(
        Checked(
            Stated(COUNT, ("n_groups",), "ssm.group_count", default=8),
            lambda known, groups: hybrid.heads_problem(
                known["mamba_d_ssm"], known["mamba_n_heads"], groups
            ),
        )
    )
    time_step_limit: list[Any] = field(hybrid.TIME_STEP_LIMIT)


def scan(
    c: mamba.Mamba2, module: str, b: str, inward: tuple[Operation, ...] = (), *, normed: bool = True
) -> Iterator[Tensor]:
    """Yield the tensors of a layer of Mamba 2, but for its output matrix.

    Args:
        c: The model's sizes.
        module: The layer's scan in a folder.
        b: What the names of the layer's tensors begin with.
        inward: From parameters to tensors of the input matrix.
        normed: Whether groups of the result have norms.
    """
    by_head = SplitAxis(c.mamba_n_heads)  # a row of one column for each
    yield weight(f"{module}.in_proj", f"{b}.ssm_in", *inward)
    yield from convolution(f"{module}.conv1d", f"{b}.ssm_conv1d")
    yield vector(f"{module}.dt_bias", f"{b}.ssm_dt.bias")
    yield vector(f"{module}.A_log", f"{b}.ssm_a", NegativeExp(), by_head)
    yield vector(f"{module}.D", f"{b}.ssm_d", by_head)
    if normed:
        yield norm(f"{module}.norm", f"{b}.ssm_norm", SplitAxis(c.mamba_n_groups))


def convolution(module: str, tensor: str) -> Iterator[Tensor]:
    """Yield the weight of a convolution over each column by itself, which has an axis of one."""
    yield norm(module, tensor, MergeAxes(1, axis=1))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="backbone.embeddings", final="backbone.norm_f")
    for i in range(c.num_hidden_layers):
        p, b = f"backbone.layers.{i}", f"blk.{i}"
        yield norm(f"{p}.norm", f"{b}.attn_norm")
        yield from scan(c, f"{p}.mixer", b)
        yield bias(f"{p}.mixer.conv1d", f"{b}.ssm_conv1d", optional=not c.use_conv_bias)
        yield weight(f"{p}.mixer.out_proj", f"{b}.ssm_out")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    return mamba.mamba2_scan(g, c, w, i, apply_norm(g, c, w, h, f"blk.{i}.attn_norm"), add=h)


FAMILY = Family("mamba2", ("mamba2",), "Mamba2", "Mamba 2", Config, tensors, layer)
