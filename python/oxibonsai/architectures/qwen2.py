"""Qwen2 and Qwen2.5: q, k and v have biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import count_or_zero, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    use_sliding_window: bool = fixed(False, name="use_sliding_window")
    sliding_window: int = count_or_zero((), "attention.sliding_window", default=0, unsaid=True)
    rope: RopeConfig = field(Rope(("default", "linear", "dynamic", "yarn")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})
        yield from decoder.biases(i, decoder.QKV)


FAMILY = Family(
    "qwen2", ("qwen2",), "Qwen2", "Qwen2", Config, tensors, decoder.layer, embed_tokens_and_images
)
