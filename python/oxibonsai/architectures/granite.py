"""Granite 3 and MiniCPM: Llama's layers with factors of embeddings, residuals and logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Layered, Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    FACTOR,
    GgufKeys,
    Kind,
    Known,
    Stated,
    biased,
    constant,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

WIDTH = Kind("f32", COUNT.of_config_json, FACTOR.of_gguf)


@dataclass(frozen=True)
class Divisor(Stated):
    """A factor, of which both sides state the reciprocal."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the factor that ``config.json`` says."""
        return float(1.0 / super().read_config_json(config, known))

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return super().write_config_json(1.0 / value, c)

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the factor that a file says."""
        return float(1.0 / super().read_gguf(keys, known))

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the key."""
        return super().write_gguf(1.0 / value, c)


@dataclass(frozen=True)
class GraniteRope(Rope):
    """A rotary embedding that a file may switch off: layers then know no positions."""

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        rope = super().read_gguf(keys, known)
        return rope if keys.flag("rope.scaling.finetuned", True) else rope.without()


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Factors of scores, embeddings, what each half of a layer adds, and logits."""

    attention_scale: float = real(
        "attention_multiplier", "attention.scale", FACTOR, default=1.0,
        key_default=decoder.root_of_head_dim,
    )  # fmt: skip
    logit_scale: float = field(Divisor(FACTOR, ("logits_scaling",), "logit_scale", default=1.0))
    embedding_scale: float = real(
        "embedding_multiplier", "embedding_scale", FACTOR, default=1.0, key_default=1.0
    )
    residual_scale: float = real(
        "residual_multiplier", "residual_scale", FACTOR, default=1.0, key_default=1.0
    )


@dataclass(frozen=True, kw_only=True)
class Config(Factors, Decoder):
    """The fields of Granite."""

    rope: RopeConfig = field(
        GraniteRope(("default", "linear", "yarn"), interleaved=True, counted=True)
    )
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.ATTENTION.values())
    mlp_bias: bool = biased("mlp_bias", *decoder.MLP.values())


@dataclass(frozen=True)
class BaseWidth(Divisor):
    """The factor of logits, of which a folder states the width of the model that it is 1 for."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the factor that ``config.json`` says."""
        width: int = Stated.read_config_json(self, config, known)
        return float(width / known["hidden_size"])

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.names[0]: round(c.hidden_size * value)}


@dataclass(frozen=True)
class Depth(Stated):
    """The factor of what each half adds, which a folder states for the root of the layers."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the factor that ``config.json`` says."""
        layers: int = known["num_hidden_layers"]
        return float(super().read_config_json(config, known) / math.sqrt(layers))

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return super().write_config_json(value * math.sqrt(c.num_hidden_layers), c)


@dataclass(frozen=True, kw_only=True)
class MiniCpmConfig(Config):
    """The fields of MiniCPM 1 and 2, whose early files have no factors: they are the 2B model's."""

    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = decoder.attention_scale()
    logit_scale: float = field(
        BaseWidth(
            WIDTH, ("dim_model_base",), "logit_scale",
            key_default=lambda known: known["hidden_size"] / 256.0,
        )
    )  # fmt: skip
    rope: RopeConfig = field(Rope(("default", "linear"), interleaved=True, theta=10000.0))
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = constant(False)
    embedding_scale: float = real("scale_emb", "embedding_scale", FACTOR, key_default=12.0)
    residual_scale: float = field(
        Depth(
            FACTOR, ("scale_depth",), "residual_scale",
            key_default=lambda known: 1.4 / math.sqrt(known["num_hidden_layers"]),
        )
    )  # fmt: skip


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c), biased=c.attention_bias)
        yield from decoder.matrices(i, decoder.MLP, biased=c.mlp_bias)


class Embedded(Layered, Protocol):
    """A model whose embeddings have a factor."""

    @property
    def embedding_scale(self) -> float:
        """The factor."""
        ...


def embed(g: Builder, c: Embedded, w: Weights) -> Value:
    """Return the rows of the token table times their factor."""
    return g.scale(g.embed(w.embedding(c)), c.embedding_scale)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, g.scale(a, c.residual_scale))
    x = blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.swiglu)
    return g.add(h, g.scale(x, c.residual_scale))


GRANITE = Family("granite", ("granite",), "Granite", "Granite", Config, tensors, layer, embed)
MINICPM = Family(
    "minicpm", ("minicpm",), "", "MiniCPM", MiniCpmConfig, tensors, layer, embed,
    saved_as=GRANITE,
)  # fmt: skip
