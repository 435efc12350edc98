"""Llama 1 to 3, SmolLM2, Mistral: q and k in the order of interleaved pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import biased, constant, count_or_zero, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.ATTENTION.values())
    mlp_bias: bool = fixed(False, name="mlp_bias")
    window_of_folder: None = fixed(None, name="sliding_window", written=False)  # older Mistral
    sliding_window: int = count_or_zero((), "attention.sliding_window", default=0, unsaid=True)
    rope: RopeConfig = field(
        Rope(("default", "linear", "dynamic", "yarn", "llama3"), interleaved=True, counted=True)
    )


@dataclass(frozen=True, kw_only=True)
class UnwindowedConfig(Config):
    """The fields of a model that has no such window, and whose angles do not depend on ``--ctx-size``."""

    window_of_folder: None = constant(None)
    sliding_window: int = constant(0)
    rope: RopeConfig = field(
        Rope(("default", "linear", "yarn", "llama3"), interleaved=True, counted=True)
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c), biased=c.attention_bias)
        yield from decoder.matrices(i, decoder.MLP)


FAMILY = Family(
    "llama", ("llama", "mistral"), "Llama", "Llama", Config, tensors, decoder.layer,
    embed_tokens_and_images,
)  # fmt: skip
