"""OLMo 2 and 3: norms after each half only, q and k normalised over all heads at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import YARN_NUMBERS, Rope, YarnNumbers, read_rope, rope_of_kind
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, count, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.windows import FULL, LOCAL, LocalLayers, window_of
from oxibonsai.graph import Builder, RopeConfig, Value

KEY = "attention.sliding_window"


@dataclass(frozen=True)
class LocalTheta:
    """The base of frequencies of layers with a window; None: nothing says it, and it is that of all."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float | None:
        """Return the value that ``config.json`` says."""
        rope = rope_of_kind(config, LOCAL)
        return None if rope is None else read_rope(config, ("default",), rope)[1]["rope_theta"]

    def write_config_json(self, value: float | None, c: Any) -> dict[str, Any]:
        """Return the embeddings of both kinds of layers."""
        whole = Rope.write_config_json(Rope(()), c.rope, c)
        full = {"rope_type": "default", "rope_theta": c.rope.theta, **(whole["rope_scaling"] or {})}
        local = {"rope_type": "default", "rope_theta": c.rope_local.theta}
        return {"rope_parameters": {FULL: full, LOCAL: local}}

    def read_gguf(self, keys: Keys, known: Known) -> float | None:
        """Return the value that a file says."""
        key = "rope.freq_base_swa"
        return None if keys.get(key) is None else keys.theta(key)

    def write_gguf(self, value: float | None, c: Any) -> GgufKeys:
        """Return the key, if anything says the value."""
        return {} if value is None else {"rope.freq_base_swa": (value, "f32")}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of OLMo 2."""

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    rope: RopeConfig = field(Rope(("default", "linear", "yarn"), also=(*YARN_NUMBERS,)))
    yarn_numbers: tuple[tuple[str, float], ...] = field(YarnNumbers(), compare=False)


@dataclass(frozen=True, kw_only=True)
class Olmo3Config(Config):
    """The fields of OLMo 3; the rotary embedding of layers with a window is not scaled."""

    sliding_window: int = count("sliding_window", KEY)
    local_layers: tuple[bool, ...] = field(LocalLayers(4))
    local_theta: float | None = field(LocalTheta(), compare=False)

    @property
    def rope_local(self) -> RopeConfig:
        """The rotary embedding of layers with a window."""
        return RopeConfig(self.rope.rotary_dim, self.local_theta or self.rope.theta)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.HEAD_NORMS, **decoder.NORMS_AFTER})
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of OLMo 2."""
    return _layer(g, c, w, i, h, c.rope, 0)


def olmo3_layer(g: Builder, c: Olmo3Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of OLMo 3."""
    window = window_of(c, i)
    return _layer(g, c, w, i, h, c.rope_local if window else c.rope, window)


def _layer(
    g: Builder, c: Config, w: Weights, i: int, h: Value, rope: RopeConfig, window: int
) -> Value:
    q, k, v = blocks.query_key_value(g, c, w, h, i)
    q, k = norm(g, c, w, q, f"blk.{i}.attn_q_norm"), norm(g, c, w, k, f"blk.{i}.attn_k_norm")
    q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
    a = blocks.attention(g, c, q, k, v, i, window=window)
    return decoder.norms_after(g, c, w, i, h, a)


OLMO3 = Family(
    "olmo2", ("olmo3",), "Olmo3", "OLMo 3", Olmo3Config, tensors, olmo3_layer,
    owns_gguf=lambda keys: keys.count(KEY) > 0,
)  # fmt: skip
OLMO2 = Family("olmo2", ("olmo2",), "Olmo2", "OLMo 2", Config, tensors, layer)
