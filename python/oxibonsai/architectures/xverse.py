"""XVERSE: Llama's names and layers; transformers has no class of its own for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    layout: str = fixed("Meta AI original pth", key="tensor_data_layout", kind="str")
    rope: RopeConfig = field(Rope(("default",), interleaved=True, counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP}, decoder.pairs(c))


FAMILY = Family(
    "xverse", ("xverse",), "", "XVERSE", Config, tensors, decoder.layer, embed_tokens_and_images
)
