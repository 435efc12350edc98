"""PLaMo: both halves of a layer read one norm; query heads that share a key come together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder, KeyValueHeads
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, count, field
from oxibonsai.architectures.schema.operations import Operation, PermuteGrid
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "model.layers.layers"
SHARED = "n_shared_head"


class KeysOfHeads(KeyValueHeads):
    """The heads of keys and values, of which ``config.json`` says how many queries share one."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        heads, shared = known["num_attention_heads"], config.count(config.get(SHARED), SHARED)
        if heads % shared != 0:
            raise config.fail(f"{heads} heads are no multiple of {shared} that share a key")
        return int(heads // shared)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {SHARED: c.num_attention_heads // value}


@dataclass(frozen=True)
class UnsaidRope(Rope):
    """A rotary embedding that folders say nothing of, and converters neither."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the usual embedding."""
        return RopeConfig(known["head_dim"], 10000.0)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    max_position_embeddings: int = count((), "context_length", default=4096)
    num_key_value_heads: int = field(KeysOfHeads())
    rope: RopeConfig = field(UnsaidRope(("default",)))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    # Head h of a folder shares key h % kv.
    kv = c.num_key_value_heads
    grid = (c.num_attention_heads // kv, kv, c.head_dim)
    grouped: dict[str, tuple[Operation, ...]] = {
        "attn_q": (PermuteGrid(grid, (1, 0, 2)),),
        "attn_output": (PermuteGrid(grid, (1, 0, 2), axis=1),),
    }
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {"norm": "attn_norm"}, layers=LAYERS)
        yield from decoder.matrices(i, decoder.ATTENTION, grouped, layers=LAYERS)
        yield from decoder.matrices(i, decoder.MLP, layers=LAYERS)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


FAMILY = Family("plamo", ("plamo",), "", "PLaMo", Config, tensors, layer)
