"""Jais 2: LayerNorms, rotated heads, squared ReLU, biases everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import biased, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

MLP = {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    activation: str = fixed("relu2", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.ATTENTION.values(), default=True)
    mlp_bias: bool = biased("mlp_bias", *MLP.values(), default=True)
    rope: RopeConfig = field(Rope(("default", "linear"), counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, biased=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, biased=True)
        yield from decoder.matrices(i, decoder.ATTENTION, biased=c.attention_bias)
        yield from decoder.matrices(i, MLP, biased=c.mlp_bias)


FAMILY = Family("jais2", ("jais2",), "Jais2", "Jais 2", Config, tensors, decoder.squared_relu_layer)
