"""Orion: Llama's layers with LayerNorms; transformers has no class for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import count, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    max_position_embeddings: int = count(
        ("max_sequence_length", "max_position_embeddings"), "context_length"
    )
    layer_norm_eps: float = decoder.layer_norm_epsilon("rms_norm_eps")
    rope: RopeConfig = field(Rope(("default", "linear"), theta=10000.0))
    activation: str = fixed("silu", name="hidden_act")
    layout: str = fixed("Meta AI original pth", key="tensor_data_layout", kind="str")


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, biased=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, biased=True)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


FAMILY = Family("orion", ("orion",), "", "Orion", Config, tensors, decoder.layer)
