"""Nanbeige 4.2: Llama's layers, which a token goes through several times.

Each time, a layer has keys and values of its own. Between the times stands the final norm, where the
model does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import MOST_LAYERS, Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, count, field, fixed, flag
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


class LayersOfPass:
    """The layers that a token goes through, each as often as it does; files and folders count each once."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        loops = config.fields.get("num_loops", 1)
        layers = config.count(config.get("num_hidden_layers"), "num_hidden_layers", MOST_LAYERS)
        total = layers * config.count(loops, "num_loops", MOST_LAYERS)
        if total > MOST_LAYERS:
            raise config.fail(f"{layers} layers, {loops} times each, are more than {MOST_LAYERS}")
        return total

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"num_hidden_layers": value // c.num_loops}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        layers, loops = keys.layers(), keys.integer("num_loops", 1)
        if layers * loops > MOST_LAYERS:
            raise keys.fail(f"{layers} layers, {loops} times each, are more than {MOST_LAYERS}")
        return layers * loops

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"block_count": (value // c.num_loops, "u32")}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    num_hidden_layers: int = field(LayersOfPass())
    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    num_loops: int = count("num_loops", "num_loops", default=1, key_default=1)
    skip_loop_final_norm: bool = flag(
        "skip_loop_final_norm", "skip_loop_final_norm", default=False, key_default=False
    )
    rope: RopeConfig = field(
        Rope(("default", "linear", "yarn", "llama3"), interleaved=True, counted=True)
    )

    @property
    def stored_layers(self) -> int:
        """Return how many layers have weights of their own."""
        return self.num_hidden_layers // self.num_loops


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.stored_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c))
        yield from decoder.matrices(i, decoder.MLP)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of the pass."""
    stored = i % c.stored_layers
    x = norm(g, c, w, h, f"blk.{stored}.attn_norm")
    q, k, v = blocks.query_key_value(g, c, w, x, stored)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), stored, add=h)
    x = norm(g, c, w, h, f"blk.{stored}.ffn_norm")
    h = blocks.gated_mlp(g, c, w, x, stored, g.swiglu, add=h)
    loop_ends = stored == c.stored_layers - 1 and i < c.num_hidden_layers - 1
    return blocks.final_norm(g, c, w, h) if loop_ends and not c.skip_loop_final_norm else h


FAMILY = Family("nanbeige", ("nanbeige",), "Nanbeige", "Nanbeige 4.2", Config, tensors, layer)
