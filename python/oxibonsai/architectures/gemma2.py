"""Gemma 2: every second layer sees a window, soft caps, norms before and after each half."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.gemma import GELU, embed
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    GgufKeys,
    Known,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import Add
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS_OF_27B = 46
KINDS = ("sliding_attention", "full_attention")
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


@dataclass(frozen=True)
class Scale:
    """The factor of scores: a file has no key for that of the 27B model, whose heads are wider."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the factor; UnsupportedError where it is not what readers of the file take."""
        stated = config.count(config.get("query_pre_attn_scalar"), "query_pre_attn_scalar")
        if stated != (usual := scalar(known)):
            raise config.unsupported(
                f"query_pre_attn_scalar is {stated}; files of Gemma 2 have no key for it, and their "
                f"readers take {usual}"
            )
        return float(usual**-0.5)

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"query_pre_attn_scalar": round(value**-2)}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the factor that a file says, or the model's own."""
        return keys.real("attention.scale", float(scalar(known) ** -0.5))

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


def scalar(known: Known) -> int:
    """Return what the factor of scores is the root of."""
    if known["num_hidden_layers"] == LAYERS_OF_27B:
        return int(known["hidden_size"] // known["num_attention_heads"])
    return int(known["head_dim"])


@dataclass(frozen=True)
class LayerTypes:
    """What each layer sees: a file has no key for others than every second one a window."""

    def read_config_json(self, config: ConfigJson, known: Known) -> list[str]:
        """Return the kinds of all layers."""
        usual = [KINDS[i % 2] for i in range(known["num_hidden_layers"])]
        if config.fields.get("layer_types", usual) != usual:
            raise config.unsupported("layer_types is not every second layer, as files have it")
        return usual

    def write_config_json(self, value: list[str], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"layer_types": value}

    def read_gguf(self, keys: Keys, known: Known) -> list[str]:
        """Return what all files mean."""
        return [KINDS[i % 2] for i in range(known["num_hidden_layers"])]

    def write_gguf(self, value: list[str], c: Any) -> GgufKeys:
        """Return no key."""
        return {}


def cap(name: str, usual: float) -> Any:
    """Return the field of a cap, which is the published models' where nothing says."""
    return real(name, name, default=usual, key_default=usual, none_is=0.0)


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = field(Scale())
    sliding_window: int = count("sliding_window", "attention.sliding_window", key_default=4096)
    attn_logit_softcapping: float = cap("attn_logit_softcapping", 50.0)
    final_logit_softcapping: float = cap("final_logit_softcapping", 30.0)
    rope: RopeConfig = field(Rope(("default",)))
    activation: str = fixed(GELU, name="hidden_activation")
    attention_bias: bool = fixed(False, name="attention_bias")
    kinds: list[str] = field(LayerTypes())
    sliding_window_pattern: int = constant(2)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield from decoder.outside(c, Add(1.0))
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, Add(1.0))
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b, window = f"blk.{i}", c.sliding_window if i % 2 == 0 else 0
    x = norm(g, c, w, h, f"{b}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i, window=window)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i, g.geglu)
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


FAMILY = Family("gemma2", ("gemma2",), "Gemma2", "Gemma 2", Config, tensors, layer, embed)
