"""Command-R and Aya, and Command R7B: both halves of a layer read one norm without a bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    FACTOR,
    GgufKeys,
    Stated,
    constant,
    count,
    field,
    fixed,
    real,
    told_by_tensors,
)
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.windows import LocalLayers, window_of
from oxibonsai.graph import Builder, RopeConfig, Value

CONTEXT = "max_position_embeddings"
NORM = {"input_layernorm": "attn_norm"}


@dataclass(frozen=True)
class CohereRope(Rope):
    """A rotary embedding of which a file says that it is not scaled, too."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``, with the share that files are written by."""
        return {**super().write_config_json(value, c), **dict.fromkeys(self.share_names, 1.0)}

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys that describe the embedding."""
        return {**super().write_gguf(value, c), "rope.scaling.type": ("none", "str")}


@dataclass(frozen=True)
class ExtendedContext(Stated):
    """The context, of which a folder says what it was before it was extended, too."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json`` that all models have."""
        return {CONTEXT: value}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of Command-R."""

    max_position_embeddings: int = field(
        ExtendedContext(COUNT, ("model_max_length", CONTEXT), "context_length")
    )
    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    logit_scale: float = real("logit_scale", "logit_scale", FACTOR, default=0.0625, key_default=1.0)
    normed_heads: bool = told_by_tensors("use_qk_norm", "blk.0.attn_q_norm.weight")
    rope: RopeConfig = field(CohereRope(("default",), interleaved=True))


@dataclass(frozen=True, kw_only=True)
class Cohere2Config(Config):
    """The fields of Command R7B: layers with a window are rotated, the others know no positions."""

    max_position_embeddings: int = count(CONTEXT, "context_length")
    logit_scale: float = real("logit_scale", "logit_scale", FACTOR, default=0.0625)
    normed_heads: bool = constant(False)
    sliding_window: int = count("sliding_window", "attention.sliding_window")
    local_layers: tuple[bool, ...] = field(LocalLayers(4, keyed=False))
    rope: RopeConfig = field(
        CohereRope(("default",), interleaved=True, counted=True, share_names=("rotary_pct",))
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**NORM, **(decoder.HEAD_NORMS if c.normed_heads else {})})
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of Command-R."""
    return _layer(g, c, w, i, h, rotated=True, window=0)


def cohere2_layer(g: Builder, c: Cohere2Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of Command R7B."""
    window = window_of(c, i)
    return _layer(g, c, w, i, h, rotated=window > 0, window=window)


def _layer(
    g: Builder, c: Config, w: Weights, i: int, h: Value, *, rotated: bool, window: int
) -> Value:
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    if c.normed_heads:
        q, k = blocks.head_norms(g, c, w, q, k, i)
    if rotated:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = blocks.attention(g, c, q, k, v, i, window=window)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


COMMAND_R = Family("command-r", ("cohere",), "Cohere", "Command-R", Config, tensors, layer)
COHERE2 = Family(
    "cohere2", ("cohere2",), "Cohere2", "Command R7B", Cohere2Config, tensors, cohere2_layer
)
