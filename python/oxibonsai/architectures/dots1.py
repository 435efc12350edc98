"""dots.llm1: Qwen3's attention, a few dense layers, then sigmoid routing beside shared experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture, qwen3
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import RoutedMixture, Scoring, SharedExperts
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    Derived,
    Known,
    count,
    field,
    fixed,
    flag,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.windows import FULL
from oxibonsai.graph import Builder, RopeConfig, Value


class NoWindow(Derived):
    """The window, which a folder may state but no layer may have."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return 0; UnsupportedError where ``config.json`` gives a window to some layers."""
        layers = int(known["num_hidden_layers"])
        kinds = config.fields.get("layer_types")
        if kinds is None and config.fields.get("sliding_window") is not None:
            windowed = config.fields.get("max_window_layers", layers) < layers
        else:
            windowed = kinds not in (None, [FULL] * layers)
        if windowed:
            raise config.unsupported("some layers have a sliding window; known are layers without")
        return 0

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"sliding_window": None}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return 0: no file has a key for it."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Config(RoutedMixture):
    """The fields of a model."""

    num_experts: int = count("n_routed_experts", "expert_count")
    shared_intermediate_size: int = field(SharedExperts("n_shared_experts", told=False))
    scoring: str = field(Scoring("sigmoid", "scoring_func", also=("noaux_tc",)))
    norm_topk_prob: bool = flag(
        "norm_topk_prob", "expert_weights_norm", default=False, key_default=False
    )
    moe_layer_freq: int = fixed(1, name="moe_layer_freq", written=False)
    attention_bias: bool = fixed(False, name="attention_bias")
    sliding_window: int = field(NoWindow())
    rope: RopeConfig = field(Rope(("default", "linear", "yarn")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, decoder.ATTENTION)
        yield from mixture.feed_forward(c, i)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = qwen3.add_attention(g, c, w, i, h)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, add=h)


FAMILY = Family("dots1", ("dots1",), "Dots1", "dots.llm1", Config, tensors, layer)
