"""GLM 4.5 to 4.7: a few dense layers, then sigmoid routing beside a shared expert.

In GLM-4.5V and 4.6V pairs turn by the axes of an image's positions. The last layers may predict further
tokens; they are no part of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, drafting, glm, mixture
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import RoutedMixture, SharedExperts
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import (
    biased,
    count,
    field,
    flag,
    told_by_tensors,
)
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.sectioned_rope import SectionedRope
from oxibonsai.graph import Builder, RopeConfig, Value

NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}


@dataclass(frozen=True, kw_only=True)
class Config(RoutedMixture):
    """The fields of a model."""

    num_hidden_layers: int = drafting.layers_of_pass()
    num_experts: int = count("n_routed_experts", "expert_count")
    shared_intermediate_size: int = field(SharedExperts("n_shared_experts", told=False))
    norm_topk_prob: bool = flag(
        "norm_topk_prob", "expert_weights_norm", default=True, key_default=False
    )
    normed_heads: bool = told_by_tensors("use_qk_norm", "blk.0.attn_q_norm.weight")
    attention_bias: bool = biased("attention_bias", *decoder.QKV.values())
    num_nextn_predict_layers: int = drafting.drafting_layers()
    rope: RopeConfig = field(Rope(("default", "linear", "yarn"), counted=True, share=0.5))


@dataclass(frozen=True, kw_only=True)
class SeeingConfig(Config):
    """The fields of a model that sees."""

    rope: RopeConfig = field(
        SectionedRope(
            ("default", "mrope"), counted=True, share=0.5, sections=glm.SECTIONS,
            taking_turns=False,
        )
    )  # fmt: skip
    sections: tuple[int, ...] = field(glm.SECTIONS)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers + c.num_nextn_predict_layers):
        yield from decoder.norms(i, {**NORMS, **(decoder.HEAD_NORMS if c.normed_heads else {})})
        yield from decoder.matrices(i, decoder.QKV, biased=c.attention_bias)
        yield from decoder.matrices(i, {"self_attn.o_proj": "attn_output"})
        yield from mixture.feed_forward(c, i)
        if i >= c.num_hidden_layers:
            yield from drafting.tensors(i)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    if c.normed_heads:
        q, k = blocks.head_norms(g, c, w, q, k, i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return mixture.feed_forward_pass(
        g, c, w, norm(g, c, w, h, f"{b}.post_attention_norm"), i, add=h
    )


FAMILY = Family(
    "glm4moe", ("glm4_moe",), "Glm4Moe", "GLM 4.5", Config, tensors, layer, drafting_layer=layer
)
SEEING = Family(
    "glm4moe", ("glm4v_moe_text",), "", "GLM 4.5V", SeeingConfig, tensors, layer,
    embed_tokens_and_images, drafting_layer=layer, wrapper=Wrapper(("glm4v_moe",)),
    owns_gguf=glm.has_sections,
)  # fmt: skip
