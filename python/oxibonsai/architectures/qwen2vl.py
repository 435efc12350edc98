"""Qwen2-VL and Qwen2.5-VL: Qwen2 whose pairs turn by the axes of an image's positions."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.architectures import decoder, qwen2
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import field
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.sectioned_rope import SectionedRope, Sections
from oxibonsai.graph import RopeConfig

ROPE = SectionedRope(("default", "mrope"), sections=Sections(), taking_turns=False)


@dataclass(frozen=True, kw_only=True)
class Config(qwen2.Config):
    """The fields of a model."""

    rope: RopeConfig = field(ROPE)
    sections: tuple[int, ...] = field(Sections())


FAMILY = Family(
    "qwen2vl", ("qwen2_vl_text", "qwen2_5_vl_text"), "", "Qwen2", Config, qwen2.tensors,
    decoder.layer, embed_tokens_and_images, wrapper=Wrapper(("qwen2_vl", "qwen2_5_vl")),
)  # fmt: skip
