"""DeciLM and Llama-Nemotron: Llama's layers of different sizes, some without attention or MLP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Constants, HeadDim, RmsNormed
from oxibonsai.architectures.layer_sizes import KEYS, Largest, LayerSizes, Sizes, Varied
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Constant, GgufKeys, Known, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

MULTIPLE = 256  # of the columns of an MLP
BLOCKS, GROUPS = "block_configs", "num_key_value_heads_per_layer"
LINEAR = {"self_attn.linear_attn": "attn_output"}


class SizesOfBlocks(LayerSizes):
    """The sizes of all layers: those of blocks, or the heads that queries share alone."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Sizes:
        """Return the sizes that ``config.json`` says."""
        layers, heads = (
            config.count(config.get(name), name)
            for name in ("num_hidden_layers", "num_attention_heads")
        )
        listed = config.get(BLOCKS)
        if listed is None:
            return self._of_groups(config, layers, heads)
        if not isinstance(listed, list) or len(listed) != layers:
            raise config.fail(f"{BLOCKS} does not list {layers} layers")
        hidden = config.count(config.get("hidden_size"), "hidden_size")
        try:
            return tuple(self._of_block(block, heads, hidden) for block in listed)
        except (KeyError, TypeError, ValueError, ArithmeticError) as e:
            raise config.fail(f"{BLOCKS} has a layer that says too little: {e!r}") from e

    @staticmethod
    def _of_groups(config: ConfigJson, layers: int, heads: int) -> Sizes:
        groups = config.get(GROUPS)
        if groups is None:
            stated = config.get("num_key_value_heads")
            groups = [config.count(stated or heads, "num_key_value_heads")] * layers
        whole = isinstance(groups, list) and all(type(n) is int and 0 < n <= heads for n in groups)
        if not whole or len(groups) != layers:
            raise config.fail(f"{GROUPS} is no counts of {layers} layers")
        width = config.count(config.get("intermediate_size"), "intermediate_size")
        return tuple((heads, n, width) for n in groups)

    @staticmethod
    def _of_block(block: Any, heads: int, hidden: int) -> tuple[int, int, int]:
        """Return a layer's sizes; one without heads may have a matrix in place of its attention."""
        attention, share = block["attention"], block["ffn"]["ffn_mult"]
        group = attention["n_heads_in_group"]
        own = heads if group is not None or attention["replace_with_linear"] is True else 0
        width = 0 if share is None else int(2 * share * hidden / 3)
        return own, 0 if group is None else heads // group, -(-width // MULTIPLE) * MULTIPLE

    def write_config_json(self, value: Sizes, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        if not c.by_blocks:
            return {GROUPS: [groups for _, groups, _ in value]}
        listed = [
            {
                "attention": {
                    "n_heads_in_group": heads // groups if groups else None,
                    "replace_with_linear": heads > 0 and groups == 0,
                },
                "ffn": {"ffn_mult": 3 * width / (2 * c.hidden_size) if width else None},
            }
            for heads, groups, width in value
        ]
        return {BLOCKS: listed}


@dataclass(frozen=True)
class ByBlocks(Constant):
    """Whether all sizes are listed for each layer; else only the heads of keys and values."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return what ``config.json`` shows."""
        return config.get(BLOCKS) is not None

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return what a file shows."""
        return isinstance(keys.get(KEYS[2]), list | np.ndarray)


@dataclass(frozen=True)
class LargestOfBlocks(Largest):
    """The largest of one of the sizes, which a file lists where the model has blocks."""

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return super().write_gguf(value, c) if c.by_blocks else {KEYS[self.place]: (value, "u32")}


@dataclass(frozen=True, kw_only=True)
class Config(Constants, RmsNormed, Varied):
    """The fields of a model."""

    layer_sizes: Sizes = field(SizesOfBlocks())
    intermediate_size: int = field(LargestOfBlocks(2, "intermediate_size"))
    num_attention_heads: int = field(LargestOfBlocks(0, "num_attention_heads"))
    num_key_value_heads: int = field(Largest(1, "num_key_value_heads"))
    head_dim: int = field(HeadDim(shared=False))
    by_blocks: bool = field(ByBlocks(False))
    activation: str = fixed("silu", name="hidden_act")
    rope: RopeConfig = field(Rope(("default", "linear", "llama3"), interleaved=True, counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    before_attention, before_mlp = ({name: part} for name, part in decoder.NORMS.items())
    for i, (heads, groups, width) in enumerate(c.layer_sizes):
        if heads:
            yield from decoder.norms(i, before_attention)
        if groups:
            yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c.of_layer(i)))
        elif heads:
            yield from decoder.matrices(i, LINEAR)
        if width:
            yield from decoder.norms(i, before_mlp)
            yield from decoder.matrices(i, decoder.MLP)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i, which may lack a half."""
    own = c.of_layer(i)
    if own.num_attention_heads > 0:
        a = norm(g, c, w, h, f"blk.{i}.attn_norm")
        if own.num_key_value_heads > 0:
            q, k, v = blocks.query_key_value(g, own, w, a, i)
            q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
            cached = sum(groups > 0 for _, groups, _ in c.layer_sizes[:i])
            a = blocks.attention(g, own, q, k, v, cached)
        h = blocks.attention_output(g, c, w, a, i, add=h)
    if own.intermediate_size > 0:
        x = norm(g, c, w, h, f"blk.{i}.ffn_norm")
        h = blocks.gated_mlp(g, own, w, x, i, g.swiglu, add=h)
    return h


FAMILY = Family("deci", ("deci", "nemotron-nas"), "", "DeciLM", Config, tensors, layer)
