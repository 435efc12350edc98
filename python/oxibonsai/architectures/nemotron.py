"""Nemotron and Minitron: LayerNorm, squared ReLU; a part of each head is rotated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    Constant,
    GgufKeys,
    Known,
    biased,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

MLP = {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


@dataclass(frozen=True)
class OtherEpsilon(Constant):
    """The epsilon of RMSNorms, which there are none of: converters write it all the same."""

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value that there is no such norm, whatever the key says."""
        keys.get("attention.layer_norm_rms_epsilon")
        return self.value


@dataclass(frozen=True)
class NemotronRope(Rope):
    """A rotary embedding of which a file says that it is not scaled, too."""

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys that describe the embedding."""
        found = super().write_gguf(value, c)
        dims = found.pop("rope.dimension_count")
        return {"rope.dimension_count": dims, "rope.scaling.type": ("none", "str"), **found}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    rms_norm_eps: float = field(OtherEpsilon(0.0))
    layer_norm_eps: float = decoder.layer_norm_epsilon("norm_eps")
    activation: str = fixed("relu2", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.ATTENTION.values())
    mlp_bias: bool = biased("mlp_bias", *MLP.values())
    rope: RopeConfig = field(NemotronRope(("default", "linear"), counted=True, share=0.5))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield from decoder.outside(c, Add(1.0), biased=True)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, Add(1.0), biased=True)
        yield from decoder.matrices(i, decoder.ATTENTION, biased=c.attention_bias)
        yield from decoder.matrices(i, MLP, biased=c.mlp_bias)


FAMILY = Family(
    "nemotron", ("nemotron",), "Nemotron", "Nemotron", Config, tensors, decoder.squared_relu_layer
)
