"""EXAONE 4: norms after each half only; where some layers see a window, only those are rotated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT_OR_ZERO,
    GgufKeys,
    Known,
    Stated,
    field,
    fixed,
)
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.windows import LocalLayers, window_of
from oxibonsai.graph import Builder, RopeConfig, Value


def usual_window(known: Known) -> int:
    """Return the window of a file that states none: early files of the 32B model have no key for it."""
    return 4096 if known["num_hidden_layers"] == 64 else 0


@dataclass(frozen=True)
class Window(Stated):
    """The window of the larger models, which a file of a smaller one leaves out."""

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key, if a file without it would not say the same."""
        if value == 0 and usual_window(vars(c)) == 0:
            return {}
        return super().write_gguf(value, c)


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    sliding_window: int = field(
        Window(
            COUNT_OR_ZERO, ("sliding_window",), "attention.sliding_window", default=0,
            key_default=usual_window, none_is=0,
        )
    )  # fmt: skip
    local_layers: tuple[bool, ...] = field(LocalLayers(4))
    rope: RopeConfig = field(Rope(("default", "linear", "llama3")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.HEAD_NORMS, **decoder.NORMS_AFTER})
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    window = window_of(c, i)
    q, k, v = blocks.query_key_value(g, c, w, h, i)
    q, k = blocks.head_norms(g, c, w, q, k, i)
    if window or c.sliding_window == 0:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = blocks.attention(g, c, q, k, v, i, window=window)
    return decoder.norms_after(g, c, w, i, h, a)


FAMILY = Family("exaone4", ("exaone4",), "Exaone4", "EXAONE 4", Config, tensors, layer)
