"""SmolLM3: Llama's layers, of which every fourth knows no positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True)
class RotatedLayers:
    """Which layers are rotated: a file has no key for others than all but every fourth."""

    def read_config_json(self, config: ConfigJson, known: Known) -> list[int]:
        """Return 1 or 0 for each layer."""
        usual = [int(is_rotated(i)) for i in range(known["num_hidden_layers"])]
        if config.fields.get("no_rope_layers", usual) != usual:
            raise config.unsupported(
                "no_rope_layers is not every fourth layer, and files have no key for others"
            )
        return usual

    def write_config_json(self, value: list[int], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"no_rope_layers": value}

    def read_gguf(self, keys: Keys, known: Known) -> list[int]:
        """Return what all files mean."""
        return [int(is_rotated(i)) for i in range(known["num_hidden_layers"])]

    def write_gguf(self, value: list[int], c: Any) -> GgufKeys:
        """Return no key."""
        return {}


def is_rotated(layer: int) -> bool:
    """Return whether a layer knows positions."""
    return (layer + 1) % 4 != 0


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    use_sliding_window: bool = fixed(False, None, name="use_sliding_window")
    rotated_layers: list[int] = field(RotatedLayers())
    rope: RopeConfig = field(Rope(("default", "linear", "yarn"), interleaved=True, counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP}, decoder.pairs(c))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    if is_rotated(i):
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.swiglu, add=h)


FAMILY = Family("smollm3", ("smollm3",), "SmolLM3", "SmolLM3", Config, tensors, layer)
