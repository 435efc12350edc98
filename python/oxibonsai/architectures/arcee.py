"""Arcee AFM: Llama's attention, squared ReLU without a gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import YARN_NUMBERS, Rope, YarnNumbers
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

PARTS = {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("relu2", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    rope: RopeConfig = field(
        Rope(("default", "linear", "yarn"), interleaved=True, counted=True, also=(*YARN_NUMBERS,))
    )
    yarn_numbers: tuple[tuple[str, float], ...] = field(YarnNumbers(), compare=False)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **PARTS}, decoder.pairs(c))


FAMILY = Family("arcee", ("arcee",), "Arcee", "Arcee", Config, tensors, decoder.squared_relu_layer)
