"""ERNIE 4.5, without experts: Llama's layers, neighbours rotated, biases in all matrices or in none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import biased, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

PARTS = {**decoder.ATTENTION, **decoder.MLP}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("silu", name="hidden_act")
    use_bias: bool = biased("use_bias", *PARTS.values())
    rope: RopeConfig = field(Rope(("default", "linear"), interleaved=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, PARTS, biased=c.use_bias)


FAMILY = Family("ernie4_5", ("ernie4_5",), "Ernie4_5", "ERNIE 4.5", Config, tensors, decoder.layer)
