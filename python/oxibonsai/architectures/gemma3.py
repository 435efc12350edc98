"""Gemma 3: local and global layers with two rotary embeddings, norms before and after each half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from oxibonsai.architectures import decoder, gemma
from oxibonsai.architectures.decoder import RmsNormed
from oxibonsai.architectures.gemma2 import KINDS, NORMS
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Rotating, Weights
from oxibonsai.architectures.rotary import Rope, read_rope
from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    REAL,
    GgufKeys,
    Kind,
    Known,
    Stated,
    constant,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.graph import Builder, RopeConfig, Value

LOCAL_THETA, PERIOD = 10000.0, 6  # where nothing says
WINDOW = Kind("u32", ConfigJson.count, lambda keys, key, default: keys.count(key))


@dataclass(frozen=True)
class Period:
    """How many layers make a period, whose last one is global."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says; newer ones list the kinds of all layers."""
        kinds, layers = config.get("layer_types"), known["num_hidden_layers"]
        if kinds is None:
            stated = config.get("_sliding_window_pattern", "sliding_window_pattern")
            return PERIOD if stated is None else config.count(stated, "sliding_window_pattern")
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise config.fail(f"layer_types does not list {layers} layers")
        local, full = KINDS
        period: int = kinds.index(full) + 1 if full in kinds else max(layers + 1, PERIOD)
        if kinds != [full if (i + 1) % period == 0 else local for i in range(layers)]:
            raise config.unsupported("layer_types has no period, which GGUF has no place for")
        return period

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        kinds = [KINDS[not is_local(c, i)] for i in range(c.num_hidden_layers)]
        return {"layer_types": kinds, "sliding_window_pattern": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("attention.sliding_window_pattern", PERIOD)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.sliding_window_pattern": (value, "u32")}


@dataclass(frozen=True)
class LocalRope:
    """The rotary embedding of local layers, which is never scaled."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = config.fields.get("rope_parameters")
        if isinstance(rope, dict) and "full_attention" in rope:
            theta = read_rope(config, ("default",), rope.get("sliding_attention"))[1]["rope_theta"]
        else:
            name = "rope_local_base_freq"
            theta = config.number(config.fields.get(name, LOCAL_THETA), name)
        return RopeConfig(known["rope"].rotary_dim, theta)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"rope_local_base_freq": value.theta}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        return RopeConfig(
            known["rope"].rotary_dim,
            keys.theta("rope.freq_base_swa", LOCAL_THETA),
            attention_factor=keys.positive("rope.scaling.attn_factor", 1.0),
        )

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the key."""
        return {"rope.freq_base_swa": (value.theta, "f32")}


@dataclass(frozen=True)
class FactorOfScores(Stated):
    """The factor of the scores, of which ``config.json`` has what it is the root of."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        (name,) = self.names
        return float(config.count(config.get(name), name) ** -0.5)

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.names[0]: round(value**-2)}


def cap(name: str) -> Any:
    """Return the field of a cap; 0: there is none."""
    return real(name, name, default=0.0, key_default=0.0, unsaid=True, none_is=0.0)


@dataclass(frozen=True, kw_only=True)
class Layers(RmsNormed):
    """The fields that decoders and encoders of these layers share."""

    tie_word_embeddings: bool = decoder.tied(True)
    sliding_window: int = field(Stated(WINDOW, ("sliding_window",), "attention.sliding_window"))
    sliding_window_pattern: int = field(Period())
    rope: RopeConfig = field(Rope(("default", "linear")))
    rope_local: RopeConfig = field(LocalRope())
    attention_scale: float = field(
        FactorOfScores(
            REAL, ("query_pre_attn_scalar",), "attention.scale",
            key_default=lambda known: known["head_dim"] ** -0.5, unsaid=True,
        )
    )  # fmt: skip
    attn_logit_softcapping: float = cap("attn_logit_softcapping")
    final_logit_softcapping: float = cap("final_logit_softcapping")
    clamp_kqv: float = constant(0.0)
    alibi_max_bias: float = constant(0.0)
    logit_scale: float = constant(1.0)
    activation: str = fixed(gemma.GELU, name="hidden_activation")
    attention_bias: bool = fixed(False, name="attention_bias")


@dataclass(frozen=True, kw_only=True)
class Config(Layers):
    """The fields of a model."""

    sees_both_sides: bool = fixed(False, None, name="use_bidirectional_attention", written=False)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; norms hold 1 + w."""
    yield from decoder.outside(c, Add(1.0))
    yield from tensors_of_layers(c)


def tensors_of_layers(c: Layers, layers: str = decoder.LAYERS) -> Iterator[Entry]:
    """Yield the tensors of all layers, whose names begin with ``layers``."""
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**NORMS, **decoder.HEAD_NORMS}, Add(1.0), layers=layers)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **decoder.MLP}, layers=layers)


class Windowed(Rotating, Protocol):
    """A model of these layers."""

    @property
    def rms_norm_eps(self) -> float:
        """Epsilon of the norms."""
        ...

    @property
    def layer_norm_eps(self) -> float:
        """0: no norm is a LayerNorm."""
        ...

    @property
    def intermediate_size(self) -> int:
        """Columns between the MLP's matrices."""
        ...

    @property
    def rope_local(self) -> RopeConfig:
        """The rotary embedding of local layers."""
        ...

    @property
    def sliding_window(self) -> int:
        """Keys that a query of a local layer sees; 0: no layer is local."""
        ...

    @property
    def sliding_window_pattern(self) -> int:
        """Layers of a period, whose last one is global."""
        ...


def is_local(c: Windowed, i: int) -> bool:
    """Return whether a layer sees its window only."""
    return c.sliding_window > 0 and (i + 1) % c.sliding_window_pattern != 0


def embed(g: Builder, c: Windowed, w: Weights) -> Value:
    """Return the scaled rows of the token table, with those of images in their places."""
    return g.images(gemma.embed(g, c, w))


def layer(g: Builder, c: Windowed, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""

    def attend(q: Value, k: Value, v: Value, window: int) -> Value:
        return blocks.attention(g, c, q, k, v, i, window=window)

    return attending_layer(g, c, w, i, h, attend)


def attending_layer(
    g: Builder,
    c: Windowed,
    w: Weights,
    i: int,
    h: Value,
    attend: Callable[[Value, Value, Value, int], Value],
) -> Value:
    """Return the hidden states after layer i, whose attention gets q, k, v and a window; 0: none."""
    b, eps, local = f"blk.{i}", c.rms_norm_eps, is_local(c, i)
    rope = c.rope_local if local else c.rope
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", c.head_dim), eps)
    k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), eps)
    q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
    a = blocks.attention_output(g, c, w, attend(q, k, v, c.sliding_window if local else 0), i)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"{b}.ffn_norm"), i, g.geglu)
    return g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))


# What Gemma3TextConfig of transformers has where a folder does not say: the hub's say little.
WITHIN = Wrapper(
    ("gemma3",),
    {
        "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_activation": gemma.GELU, "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256, "rope_theta": 1e6, "sliding_window": 4096,
    },
)  # fmt: skip
FAMILY = Family(
    "gemma3", ("gemma3_text",), "Gemma3", "Gemma 3", Config, tensors, layer, embed, wrapper=WITHIN
)
