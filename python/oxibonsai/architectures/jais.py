"""Jais: GPT-2's names, linear biases, a gated MLP; scales become part of the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oxibonsai.architectures import decoder, gpt2
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.gpt2 import LAYERS, MASKS, NORMS, Gpt
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.arithmetic import Computing, Scale
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    POSITIVE,
    Constant,
    Known,
    Stated,
    constant,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import Array, OneWay, Operation, Shape, Transpose
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry, Tensor, bias, norm
from oxibonsai.graph import Builder, RopeConfig, Value

PARTS = {**gpt2.PARTS, "mlp.c_fc2": "ffn_gate"}
TURNED: dict[str, tuple[Operation, ...]] = dict.fromkeys(PARTS.values(), (Transpose(),))
TABLE, HEAD, SLOPES = "transformer.wte.weight", "lm_head.weight", "relative_pe.slopes"


def one_over_width(known: Known) -> float:
    """Return the factor of the scores: heads' widths divide them, not their roots."""
    return float(1.0 / known["head_dim"])


@dataclass(frozen=True)
class Steepness(Stated):
    """The steepness of linear biases, whose first slope is 2^(-steepness / heads) where it is stored."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that the folder's slopes tell."""
        slopes = [held for name, held in config.parameters().items() if name.endswith(SLOPES)]
        if not slopes:
            return 8.0
        first = float(slopes[0].values().reshape(-1)[0])
        if not 0.0 < first < 1.0:
            raise config.fail(f"the first of {SLOPES} is {first}, not within 0 and 1")
        heads: int = known["num_attention_heads"]
        return float(-round(math.log2(first) * (1 << (heads.bit_length() - 1))))


@dataclass(frozen=True)
class OneTable(Constant):
    """Whether a folder has one table for both ends; a file has two, for their scales differ."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return what the folder's parameters tell."""
        names = config.parameters()
        return TABLE in names and HEAD not in names


@dataclass(frozen=True)
class HeadScale(Stated):
    """The factor of the output matrix: one number, or a product of two."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        if (alpha := config.get("mup_output_alpha")) is None:
            return float(super().read_config_json(config, known))
        width = config.get("mup_width_scale")
        return config.number(alpha, "mup_output_alpha", 1e6) * config.number(
            width, "mup_width_scale", 1e6
        )


@dataclass(frozen=True)
class ScaledCopies(Computing):
    """Multiplies one array by several numbers, an array for each."""

    numbers: tuple[float, ...]

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the products."""
        (whole,) = arrays
        return [whole * np.float32(number) for number in self.numbers]

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shape for each number."""
        (whole,) = shapes
        return [whole for _ in self.numbers]

    @property
    def inverse(self) -> FirstUnscaled:
        """Return the step that undoes this one."""
        return FirstUnscaled(self.numbers)


@dataclass(frozen=True)
class FirstUnscaled(Computing):
    """Divides the first of several arrays by the first of as many numbers."""

    numbers: tuple[float, ...]

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the quotient."""
        return [arrays[0] / np.float32(self.numbers[0])]

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the first array."""
        return [shapes[0]]

    @property
    def inverse(self) -> ScaledCopies:
        """Return the step that undoes this one."""
        return ScaledCopies(self.numbers)


@dataclass(frozen=True, kw_only=True)
class Config(Gpt):
    """The fields of a model."""

    attention_scale: float = real(
        (), "attention.scale", default=one_over_width, key_default=one_over_width, unsaid=True
    )
    alibi_max_bias: float = field(Steepness(POSITIVE, (), "attention.max_alibi_bias"))
    activation: str = fixed("swiglu", name="activation_function")
    positions: str = fixed("alibi", name="position_embedding_type")
    one_table: bool = field(OneTable(False))
    table_scale: float = real(("embeddings_scale", "mup_embeddings_scale"), key_default=1.0)
    head_scale: float = field(HeadScale(POSITIVE, ("width_scale",), "", key_default=1.0))
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model, whose matrices have columns for rows."""
    if c.one_table:
        scales = (c.table_scale, c.head_scale)
        both = ("token_embd.weight", "output.weight")
        yield Tensor((TABLE,), both, (OneWay((ScaledCopies(scales),), (FirstUnscaled(scales),)),))
    else:
        yield Tensor((TABLE,), ("token_embd.weight",), (OneWay((Scale(c.table_scale),)),))
        yield Tensor((HEAD,), ("output.weight",), (OneWay((Scale(c.head_scale),)),))
    yield norm("transformer.ln_f", "output_norm")
    yield bias("transformer.ln_f", "output_norm")
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS, biased=True)
        yield from decoder.matrices(i, PARTS, TURNED, layers=LAYERS)
        yield from decoder.biases(i, PARTS, layers=LAYERS)


def layer(g: Builder, c: LayerNormDecoder, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, apply_norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family(
    "jais", ("jais",), "", "Jais", Config, tensors, layer, ignored=(*MASKS, f"*{SLOPES}")
)
