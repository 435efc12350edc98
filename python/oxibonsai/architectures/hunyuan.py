"""Hunyuan, without experts: q and k are normalised per head after they are rotated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Known, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

# What is beside alpha in published configurations, and without effect next to it.
STRETCH = ("alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "factor")
NORMS = {
    **decoder.NORMS,
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
}


@dataclass(frozen=True)
class StretchedRope(Rope):
    """A rotary embedding whose base may be stretched by ``alpha``: a file has that of the whole context.

    theta * alpha ** (dims / (dims - 2)) is the model's own rule at every length of a text.
    """

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = config.get("rope_parameters", "rope_scaling")
        if not isinstance(rope, dict) or rope.get("alpha") is None:
            return super().read_config_json(config, known)
        found = replace(self, kinds=(*self.kinds, "dynamic")).read_object(config, known, rope)
        alpha, width = config.number(rope["alpha"], "alpha", 2**31), known["head_dim"]
        theta = float(found.theta * alpha ** (width / (width - 2)))
        return replace(found, theta=theta, scaling="none", factor=1.0, original_context=0)


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    rope: RopeConfig = field(StretchedRope(("default",), also=STRETCH))
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    if w.has(f"blk.{i}.attn_q_norm.weight"):  # a file may lack both
        q, k = blocks.head_norms(g, c, w, q, k, i)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.swiglu, add=h)


FAMILY = Family(
    "hunyuan-dense", ("hunyuan_v1_dense",), "HunYuanDenseV1", "Hunyuan", Config, tensors, layer
)
