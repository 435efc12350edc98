"""Falcon: both halves of a layer read the same states, through one norm or two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, KeyValueHeads, LayerNormDecoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, count, field, fixed
from oxibonsai.architectures.schema.operations import (
    Concatenate,
    MergeAxes,
    Operation,
    Split,
    SplitAxis,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "transformer.h"
PARTS = {
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
NORMS = {1: {"input_layernorm": "attn_norm"}, 2: {"ln_mlp": "attn_norm", "ln_attn": "attn_norm_2"}}
NEW = "new_decoder_architecture"


class SharedHeads(KeyValueHeads):
    """The heads of keys and values, of which older configurations say whether there is one."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        if config.get("multi_query") is True and config.get(NEW) is not True:
            return 1
        stated = config.get("num_kv_heads", "n_head_kv")
        heads: int = known["num_attention_heads"]
        return heads if stated is None else config.count(stated, "num_kv_heads")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"num_key_value_heads": value, "num_kv_heads": value}


@dataclass(frozen=True)
class NormsOfLayer:
    """How many norms a layer has, which tells the kinds of models apart."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        two = config.get(NEW) is True and config.get("num_ln_in_parallel_attn") in (None, 2)
        return 2 if two else 1

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        shared = value == 1 and c.num_key_value_heads == 1
        return {"multi_query": shared, NEW: not shared, "num_ln_in_parallel_attn": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file shows by its tensors."""
        return 2 if "blk.0.attn_norm_2.weight" in keys.tensor_names else 1

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormDecoder):
    """The fields of a model."""

    num_hidden_layers: int = decoder.layer_count("num_hidden_layers", "n_layer")
    max_position_embeddings: int = count(
        "max_position_embeddings",
        "context_length",
        default=2048,  # of the published models
    )
    intermediate_size: int = count(
        "ffn_hidden_size", "feed_forward_length", also_written=("intermediate_size",),
        default=lambda known: 4 * known["hidden_size"],
    )  # fmt: skip
    num_attention_heads: int = count(("num_attention_heads", "n_head"), "attention.head_count")
    num_key_value_heads: int = field(SharedHeads())
    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = decoder.layer_norm_epsilon("layer_norm_epsilon")
    tie_word_embeddings: bool = decoder.tied(True)
    activation: str = fixed("gelu", name="activation")
    alibi: bool = fixed(False, name="alibi")
    bias: bool = fixed(False, name="bias")
    parallel_attn: bool = fixed(True, name="parallel_attn")
    norms: int = field(NormsOfLayer())
    layout: str = fixed("jploski", key="tensor_data_layout", kind="str")  # q, k and v apart
    rope: RopeConfig = field(Rope(("default", "linear"), theta=10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(
        c, embedding="transformer.word_embeddings", final="transformer.ln_f", biased=True
    )
    groups, width = c.num_key_value_heads, c.head_dim
    q = c.num_attention_heads // groups * width
    apart: tuple[Operation, ...] = (
        SplitAxis(groups),  # a folder has the q of a group of heads, then its k and v
        Split((q, width, width), axis=1),
        MergeAxes(groups),
        Concatenate((groups * q, groups * width, groups * width)),
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS[c.norms], layers=LAYERS, biased=True)
        yield from decoder.matrices(i, PARTS, {"attn_qkv": apart}, layers=LAYERS)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = own = norm(g, c, w, h, f"blk.{i}.attn_norm")
    if w.has(f"blk.{i}.attn_norm_2.weight"):  # the larger models: attention has its own
        own = norm(g, c, w, h, f"blk.{i}.attn_norm_2")
    a = blocks.rotated_attention(g, c, w, own, i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.plain_mlp(g, c, w, x, i, g.gelu, add=h)


FAMILY = Family("falcon", ("falcon",), "Falcon", "Falcon", Config, tensors, layer)
