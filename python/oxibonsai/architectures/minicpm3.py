"""MiniCPM 3: latent attention, and factors of embeddings, residuals and logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Constants, RmsNormed
from oxibonsai.architectures.latent import (
    ROPE,
    CachedDim,
    CachedHeads,
    HeadScale,
    LatentSizes,
    PlainDim,
    ValueDim,
    latent_of,
    latent_tensors,
    query_rank,
    rotated_dim,
    value_rank,
)
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.latent import LatentConfig, latent_attention
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.long_rope import LongRope, ScaledRope, Tables, table_tensors
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    POSITIVE,
    GgufKeys,
    Known,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, weight
from oxibonsai.graph import Builder, RopeConfig, Value

# Of the 4B model, where files and folders do not say.
EMBEDDING, DEPTH, BASE = 12.0, 1.4, 256.0
# Of the norms of latent vectors, whatever that of the others is.
LATENT_EPS = 1e-6


@dataclass(frozen=True)
class RotatedPart(ScaledRope):
    """The rotary embedding of a part of each head."""

    def dims(self, config: ConfigJson, known: Known) -> int:
        """Return the rotated dims that ``config.json`` says."""
        return config.count(config.get(ROPE), ROPE)

    def head_dim(self, keys: Keys, known: Known) -> int:
        """Return the rotated dims, which are all of that part."""
        return keys.integer("rope.dimension_count")


@dataclass(frozen=True)
class ResidualScale:
    """The factor of what each half of a layer adds, from one for the depth of the model."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        stated = config.get("scale_depth")
        depth = DEPTH if stated is None else config.number(stated, "scale_depth", 1e6)
        return depth / math.sqrt(known["num_hidden_layers"])

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"scale_depth": float(f"{value * math.sqrt(c.num_hidden_layers):.6g}")}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        return keys.positive("residual_scale", DEPTH / math.sqrt(known["num_hidden_layers"]))

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the key."""
        return {"residual_scale": (value, "f32")}


@dataclass(frozen=True)
class LogitScale:
    """The factor of the logits, of which files state the divisor and folders the width that has none.

    Attributes:
        written: Whether this field writes it: of two, the one at the place that files have it at.
    """

    written: bool = True

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        stated = config.get("dim_model_base")
        base = BASE if stated is None else config.number(stated, "dim_model_base", 1e6)
        return float(base / known["hidden_size"])

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"dim_model_base": round(c.hidden_size * value)} if self.written else {}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        return 1.0 / keys.positive("logit_scale", known["hidden_size"] / BASE)

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the key."""
        return {"logit_scale": (1.0 / value, "f32")} if self.written else {}


@dataclass(frozen=True, kw_only=True)
class Config(LatentSizes, Constants, RmsNormed):
    """The fields of a model."""

    num_key_value_heads: int = field(CachedHeads(apart=False))
    head_dim: int = field(CachedDim(apart=False))
    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = field(HeadScale())
    logit_scale: float = field(LogitScale(written=False))
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    rope: RopeConfig = field(RotatedPart())
    long_rope: LongRope | None = field(Tables(RotatedPart()))
    q_lora_rank: int = query_rank()
    kv_lora_rank: int = value_rank()
    qk_nope_head_dim: int = field(PlainDim(apart=False))
    v_head_dim: int = field(ValueDim(apart=False))
    qk_rope_head_dim: int = rotated_dim()
    embedding_scale: float = real(
        "scale_emb", "embedding_scale", POSITIVE, default=EMBEDDING, key_default=EMBEDDING
    )
    residual_scale: float = field(ResidualScale())
    base_scale: float = field(LogitScale())

    @property
    def latent(self) -> LatentConfig:
        """Sizes of the latent vectors and of the heads."""
        return latent_of(self, LATENT_EPS)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from latent_tensors(c, i)
        yield weight(f"model.layers.{i}.self_attn.kv_b_proj", f"blk.{i}.attn_kv_b")
        yield from decoder.matrices(i, decoder.MLP)
    yield from table_tensors(c.long_rope)


def embed(g: Builder, c: Config, w: Weights) -> Value:
    """Return the scaled rows of the token table."""
    return g.scale(g.embed(w.embedding(c)), c.embedding_scale)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    h = g.add(h, g.scale(latent_attention(g, c, w, i, x, add=None), c.residual_scale))
    x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
    x = blocks.gated_mlp(g, c, w, x, i, g.swiglu)
    return g.add(h, g.scale(x, c.residual_scale))


FAMILY = Family("minicpm3", ("minicpm3",), "MiniCPM3", "MiniCPM 3", Config, tensors, layer, embed)
