"""Mistral 3 (Ministral, Mistral Small 3.1): Llama's layers; queries may grow with the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import ORIGINAL, YARN_NUMBERS, Rope, YarnNumbers
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import (
    REAL,
    Fixed,
    GgufKeys,
    Inside,
    Known,
    Stated,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

OBJECT, GROWTH = "rope_parameters", "llama_4_scaling_beta"
ALSO = (*YARN_NUMBERS, GROWTH, "mscale", "mscale_all_dim", "max_position_embeddings")


@dataclass(frozen=True)
class YarnRope(Rope):
    """A rotary embedding of YaRN, with all of its numbers."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        found = {"rope_type": "default", "rope_theta": value.theta}
        if value.scaling == "yarn":
            found |= {
                "rope_type": "yarn",
                "factor": value.factor,
                ORIGINAL: value.original_context,
                "beta_fast": value.beta_fast,
                "beta_slow": value.beta_slow,
            }
        return {"rope_theta": value.theta, OBJECT: found}


@dataclass(frozen=True)
class Growth:
    """How queries grow: a factor, and the tokens of a step; a factor of 0: they do not."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[float, int]:
        """Return the value that ``config.json`` says."""
        return config.number(config.fields.get(GROWTH), GROWTH), known["rope"].original_context

    def write_config_json(self, value: tuple[float, int], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, if queries grow."""
        return {GROWTH: value[0]} if value[0] else {}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[float, int]:
        """Return the value that a file says."""
        scale = keys.real("attention.temperature_scale", 0.0)
        if scale == 0.0:
            return 0.0, 0
        if known["rope"].rotary_dim != known["head_dim"]:
            raise keys.unsupported(
                "a temperature of heads that are rotated in part is not supported"
            )
        return scale, keys.integer("rope.scaling.original_context_length")

    def write_gguf(self, value: tuple[float, int], c: Any) -> GgufKeys:
        """Return the key of the factor, if queries grow; a step is the original context."""
        return {"attention.temperature_scale": (value[0], "f32")} if value[0] else {}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    rope: RopeConfig = field(YarnRope(("yarn",), interleaved=True, counted=True, also=ALSO))
    yarn_numbers: tuple[tuple[str, float], ...] = field(YarnNumbers(), compare=False)
    mscale: float = field(Inside(OBJECT, Fixed(1.0, (1,), name="mscale")))
    multiplier: float = field(
        Inside(
            OBJECT,
            Stated(REAL, ("mscale_all_dim",), "rope.scaling.yarn_log_multiplier", key_default=0.0),
        )
    )
    growth: tuple[float, int] = field(Inside(OBJECT, Growth()))
    activation: str = fixed("silu", name="hidden_act")
    window_of_folder: None = fixed(None, name="sliding_window")

    @property
    def rope_query(self) -> RopeConfig:
        """The rotary embedding of queries."""
        scale, step = self.growth
        return replace(self.rope, temperature=scale, temperature_step=step)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP}, decoder.pairs(c))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    q, k = g.rope(q, c.rope_query, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.swiglu, add=h)


FAMILY = Family(
    "mistral3", ("ministral3",), "Ministral3", "Ministral 3", Config, tensors, layer,
    embed_tokens_and_images,
)  # fmt: skip
