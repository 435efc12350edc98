"""MPT: linear biases for positions, q, k and v within bounds, norms without biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    POSITIVE,
    Field,
    Fixed,
    GgufKeys,
    Inside,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.blocks"
NORMS = {"norm_1": "attn_norm", "norm_2": "ffn_norm"}
PARTS = {
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "ffn.up_proj": "ffn_up",
    "ffn.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Expansion:
    """The MLP's columns, which ``config.json`` has as a multiple of the hidden size."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        times = config.fields.get("expansion_ratio", 4)
        return int(known["hidden_size"] * config.count(times, "expansion_ratio"))

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"expansion_ratio": value // c.hidden_size, "intermediate_size": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("feed_forward_length")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"feed_forward_length": (value, "u32")}


@dataclass(frozen=True)
class Steepness(Stated):
    """The steepness of linear biases; learned positions, which transformers never had, have none."""

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, where it is a whole number."""
        return {self.names[0]: round(value)}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        if keys.real(self.key) <= 0.0:
            raise keys.unsupported("MPT with learned positions is not supported")
        return keys.positive(self.key)


def of_attention(described: Field) -> Any:
    """Return a field that ``config.json`` has among those of attention."""
    return field(Inside("attn_config", described))


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count("n_layers", also_written=("num_hidden_layers",))
    max_position_embeddings: int = count(
        "max_seq_len", "context_length", also_written=("max_position_embeddings",)
    )
    hidden_size: int = count("d_model", "embedding_length", also_written=("hidden_size",))
    intermediate_size: int = field(Expansion())
    num_attention_heads: int = count(
        "n_heads", "attention.head_count", also_written=("num_attention_heads",)
    )
    num_key_value_heads: int = decoder.key_value_heads(also_written=("num_key_value_heads",))
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon("layer_norm_epsilon")
    tie_word_embeddings: bool = decoder.tied(True)
    clamp_kqv: float = of_attention(
        Stated(
            POSITIVE, ("clip_qkv",), "attention.clamp_kqv", default=0.0, key_default=0.0,
            unsaid=True, none_is=0.0,
        )
    )  # fmt: skip
    alibi_max_bias: float = of_attention(
        Steepness(POSITIVE, ("alibi_bias_max",), "attention.max_alibi_bias", default=8.0)
    )
    alibi: bool = of_attention(Fixed(True, name="alibi"))
    attention: str = of_attention(Fixed("multihead_attention", name="attn_type", written=False))
    qk_layernorm: bool = of_attention(Fixed(False, name="qk_ln", written=False))
    prefix_lm: bool = of_attention(Fixed(False, name="prefix_lm", written=False))
    softmax_scale: None = of_attention(Fixed(None, name="softmax_scale", written=False))
    stated_logit_scale: None = fixed(None, name="logit_scale", written=False)
    no_bias: bool = fixed(True, name="no_bias")
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="transformer.wte", final="transformer.norm_f")
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS)
        yield from decoder.matrices(i, PARTS, layers=LAYERS)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.plain_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.gelu, add=h)


FAMILY = Family("mpt", ("mpt",), "Mpt", "MPT", Config, tensors, layer)
