"""Phi-3, Phi-3.5 and Phi-4: q, k and v in one tensor, gate and up in another, LongRoPE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.long_rope import (
    LongRope,
    ScaledRope,
    Tables,
    original_context,
    table_tensors,
)
from oxibonsai.architectures.rotary import ORIGINAL, PARTIAL
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, count_or_zero, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

PARTS = {
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class PartialRope(ScaledRope):
    """The rotary embedding, of which both sides say what part of a head it rotates."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        found = super().write_config_json(value, c)
        if value.rotary_dim != c.head_dim:
            found[PARTIAL] = value.rotary_dim / c.head_dim
        return found

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys of the rotated dims and of the base."""
        dims: GgufKeys = {"rope.dimension_count": (value.rotary_dim, "u32")}
        return dims | super().write_gguf(value, c)


@dataclass(frozen=True)
class OriginalContext:
    """The positions of the model before its context was extended, which all models state."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return original_context(config, known)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {ORIGINAL: value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        whole: int = known["max_position_embeddings"]
        return keys.integer("rope.scaling.original_context_length", whole)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"rope.scaling.original_context_length": (value, "u32")}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    rope: RopeConfig = field(PartialRope())
    original: int = field(OriginalContext())
    long_rope: LongRope | None = field(Tables(PartialRope()))
    activation: str = fixed("silu", name="hidden_act")
    sliding_window: int = count_or_zero(  # zero tells Phi-4 from the others
        "sliding_window", "attention.sliding_window", default=0, none_is=0
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from table_tensors(c.long_rope)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, PARTS)


FAMILY = Family("phi3", ("phi3",), "Phi3", "Phi-3", Config, tensors, decoder.layer)
