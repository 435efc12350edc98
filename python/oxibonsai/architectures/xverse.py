"""XVERSE: Llama's names and layers; transformers has no class of its own for it."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.architectures import decoder, llama
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import constant, field, fixed
from oxibonsai.graph import RopeConfig


@dataclass(frozen=True, kw_only=True)
class Config(llama.Config):
    """The fields of a model."""

    attention_bias: bool = constant(False)
    layout: str = fixed("Meta AI original pth", key="tensor_data_layout", kind="str")
    rope: RopeConfig = field(Rope(("default",), interleaved=True, counted=True))


FAMILY = Family(
    "xverse", ("xverse",), "", "XVERSE", Config, llama.tensors, decoder.layer,
    embed_tokens_and_images, saved_as=llama.FAMILY,
)  # fmt: skip
