"""GLM-4: a part of each head is rotated; in the 0414 models norms before and after each half.

That of GLM-4.1V and 4.6V is an 0414 model whose pairs turn by the axes of an image's positions. Folders
have the rotated dims of its heads as pairs of neighbours, files as halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import PARTIAL, Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import biased, field, fixed
from oxibonsai.architectures.schema.operations import (
    Concatenate,
    MergeAxes,
    OnPart,
    Operation,
    PermuteGrid,
    Split,
    SplitAxis,
)
from oxibonsai.architectures.schema.sources import Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.sectioned_rope import SectionedRope, Sections
from oxibonsai.graph import Builder, RopeConfig, Value

PARTS = {
    "self_attn.o_proj": "attn_output",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
AFTER = {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = biased("attention_bias", *decoder.QKV.values())
    rope: RopeConfig = field(Rope(("default",), interleaved=True, counted=True, share=0.5))


SECTIONS = Sections((8, 12, 12, 0))


def has_sections(keys: Keys) -> bool:
    """Return whether the pairs of a file's model turn by the axes of an image's positions."""
    return keys.get("rope.dimension_sections") is not None


@dataclass(frozen=True, kw_only=True)
class SeeingConfig(Config):
    """The fields of a model that sees."""

    attention_bias: bool = fixed(True, name="attention_bias")
    rope: RopeConfig = field(
        SectionedRope(
            ("default", "mrope"), counted=True, share_names=(PARTIAL,), sections=SECTIONS,
            taking_turns=False,
        )
    )  # fmt: skip
    sections: tuple[int, ...] = field(SECTIONS)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from _tensors(c, {})


def _tensors(c: Config, orders: Mapping[str, tuple[Operation, ...]]) -> Iterator[Entry]:
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.QKV, orders, biased=c.attention_bias)
        yield from decoder.matrices(i, PARTS)


def tensors_0414(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model that has a norm after each half, too."""
    yield from tensors(c)
    yield from _norms_after(c)


def seeing_tensors(c: SeeingConfig) -> Iterator[Entry]:
    """Yield all tensors of a model that sees."""
    yield from _tensors(c, halves(c))
    yield from _norms_after(c)


def _norms_after(c: Config) -> Iterator[Entry]:
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, AFTER)


def halves(c: SeeingConfig) -> dict[str, tuple[Operation, ...]]:
    """Return what makes halves of the pairs of neighbours of each head of q and k."""

    def part(heads: int) -> tuple[Operation, ...]:
        rotated, rest = c.rope.rotary_dim, c.head_dim - c.rope.rotary_dim
        order = PermuteGrid((rotated // 2, 2), (1, 0), axis=1)
        if rest == 0:
            return SplitAxis(heads), order, MergeAxes(heads)
        sizes = rotated, rest
        steps = Split(sizes, axis=1), OnPart(0, order), Concatenate(sizes, axis=1)
        return SplitAxis(heads), *steps, MergeAxes(heads)

    return {"attn_q": part(c.num_attention_heads), "attn_k": part(c.num_key_value_heads)}


def layer_0414(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of a model with these norms."""
    b = f"blk.{i}"
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i, g.swiglu)
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


GLM = Family("chatglm", ("glm",), "Glm", "GLM", Config, tensors, decoder.layer)
SEEING = Family(
    "glm4", ("glm4v_text",), "", "GLM-4V", SeeingConfig, seeing_tensors, layer_0414,
    embed_tokens_and_images, wrapper=Wrapper(("glm4v", "glm46v")), owns_gguf=has_sections,
)  # fmt: skip
GLM4 = Family("glm4", ("glm4",), "Glm4", "GLM-4", Config, tensors_0414, layer_0414)
