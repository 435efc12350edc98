"""ModernBERT: a norm before each half of a layer, every third layer global, the others local."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.encoder import Encoder, EncoderFamily, Pooled, rope_object
from oxibonsai.architectures.heads import POOLING_TYPES, Head
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.pooled import ClassifierConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import read_rope
from oxibonsai.architectures.schema.fields import (
    COUNT,
    POSITIVE_EPSILON,
    Derived,
    GgufKeys,
    Known,
    Stated,
    Word,
    count,
    field,
    fixed,
    told_by_tensors,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, bias, vector, weight
from oxibonsai.architectures.schema.tensors import norm as norm_entry
from oxibonsai.graph import Builder, RopeConfig, Value

KINDS = ("full_attention", "sliding_attention")
GLOBAL_THETA, LOCAL_THETA, PERIOD = 160000.0, 10000.0, 3  # where nothing says
PARTS = {
    "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down",
}  # fmt: skip


@dataclass(frozen=True)
class Epsilon(Stated):
    """The epsilon of the norms; files hold it under the name of the other kind too, or only."""

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        other = keys.get("attention.layer_norm_rms_epsilon")
        return keys.positive(self.key, other)


class Window(Stated):
    """The keys that a token of a local layer sees, on both sides together; 0: all."""

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        window = keys.count(self.key)
        if window == 1:
            raise keys.unsupported(
                "a window of one token, which sees itself alone, is not supported"
            )
        return window


@dataclass(frozen=True)
class Pattern:
    """How many layers make a period, of which the first is global; or whether each layer is local."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int | tuple[bool, ...]:
        """Return the period that ``config.json`` says, of which newer ones list all kinds."""
        kinds, layers = config.get("layer_types"), known["num_hidden_layers"]
        if kinds is None:
            name = "global_attn_every_n_layers"
            stated = config.get(name)
            return PERIOD if stated is None else config.count(stated, name)
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise config.fail(f"layer_types does not list {layers} layers")
        others = [i for i, kind in enumerate(kinds) if kind == KINDS[0] and i > 0]
        period = others[0] if others else max(layers, PERIOD)
        if kinds != [KINDS[i % period != 0] for i in range(layers)]:
            raise config.unsupported("layer_types has no period, which GGUF has no place for")
        return period

    def write_config_json(self, value: int | tuple[bool, ...], c: Any) -> dict[str, Any]:
        """Return the kinds of all layers."""
        return {"layer_types": [KINDS[c.is_local(i)] for i in range(c.num_hidden_layers)]}

    def read_gguf(self, keys: Keys, known: Known) -> int | tuple[bool, ...]:
        """Return the value that a file says."""
        stated = keys.get("attention.sliding_window_pattern")
        if isinstance(stated, list | np.ndarray):
            return keys.local_layers(PERIOD)
        return keys.integer("attention.sliding_window_pattern", PERIOD)

    def write_gguf(self, value: int | tuple[bool, ...], c: Any) -> GgufKeys:
        """Return the key."""
        kind = "u32" if isinstance(value, int) else "arr[bool]"
        return {"attention.sliding_window_pattern": (value, kind)}


def rotation(config: ConfigJson, known: Known, place: int) -> RopeConfig:
    """Return the rotary embedding of global layers, or of local ones: those of ``KINDS`` in order."""
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and set(rope) >= set(KINDS):
        stated = rope[KINDS[place]]
    else:
        name = ("global_rope_theta", "local_rope_theta")[place]
        stated = {"rope_theta": config.get(name) or (GLOBAL_THETA, LOCAL_THETA)[place]}
    return RopeConfig(known["head_dim"], read_rope(config, ("default",), stated)[1]["rope_theta"])


@dataclass(frozen=True)
class GlobalRope(Derived):
    """The rotary embedding of global layers; :class:`LocalRope` writes both."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        return rotation(config, known, 0)

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        return keys.rope(known["head_dim"])


@dataclass(frozen=True)
class LocalRope:
    """The rotary embedding of local layers."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        return rotation(config, known, 1)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the object with those of both kinds of layers."""
        both = (rope_object(c.rope), rope_object(value))
        return {"rope_parameters": dict(zip(KINDS, both, strict=True))}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        rope: RopeConfig = known["rope"]
        return replace(rope, theta=keys.theta("rope.freq_base_swa", LOCAL_THETA))

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys of both embeddings."""
        return {
            "rope.freq_base": (c.rope.theta, "f32"),
            "rope.freq_base_swa": (value.theta, "f32"),
            "rope.scaling.type": ("none", "str"),
        }


@dataclass(frozen=True)
class ClassifierPooling:
    """The pooling that the head of a classifier reads; None: nothing says, and there is none."""

    def read_config_json(self, config: ConfigJson, known: Known) -> str | None:
        """Return the value that ``config.json`` says."""
        stated = config.fields.get("classifier_pooling")
        if stated not in (None, "cls", "mean"):
            raise config.unsupported(
                f"classifier_pooling is {stated!r}; known are 'cls' and 'mean'"
            )
        return stated

    def write_config_json(self, value: str | None, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, where a file says it."""
        return {} if value is None else {"classifier_pooling": value}

    def read_gguf(self, keys: Keys, known: Known) -> str | None:
        """Return the value that a file says."""
        if known["head"] is not None:
            head: str = known["head"].pooling
            return head
        key = "classifier.pooling_type"
        return None if keys.get(key) is None else keys.pooling("mean", key)

    def write_gguf(self, value: str | None, c: Any) -> GgufKeys:
        """Return the key, where something says."""
        return {} if value is None else {"classifier.pooling_type": (POOLING_TYPES[value], "u32")}


@dataclass(frozen=True, kw_only=True)
class Windowed(Encoder):
    """The fields of its own."""

    layer_norm_eps: float = field(
        Epsilon(POSITIVE_EPSILON, ("norm_eps",), "attention.layer_norm_epsilon", default=1e-12)
    )
    head: ClassifierConfig | None = field(Head("mean", "gelu"))
    rope: RopeConfig = field(GlobalRope())
    window: int = field(Window(COUNT, ("local_attention",), "attention.sliding_window"))
    pattern: int | tuple[bool, ...] = field(Pattern(), compare=False)  # but local_layers
    rope_local: RopeConfig = field(LocalRope())
    hidden_act: str = field(
        Word("hidden_activation", "hidden_activation", {"gelu": "gelu", "silu": "silu"})
    )
    stated_vocabulary: int = count(
        "vocab_size", "vocab_size", key_default=lambda known: known["vocab_size"]
    )

    @property
    def sliding_window(self) -> int:
        """Tokens on each side of a token that a local layer sees; 0: all."""
        return self.window // 2

    @property
    def local_layers(self) -> tuple[bool, ...]:
        """Whether each layer is local."""
        if isinstance(self.pattern, tuple):
            return self.pattern
        return tuple(i % self.pattern != 0 for i in range(self.num_hidden_layers))

    def is_local(self, layer: int) -> bool:
        """Return whether a layer sees its window only."""
        return self.sliding_window > 0 and self.local_layers[layer]


@dataclass(frozen=True, kw_only=True)
class Config(Pooled, Windowed):
    """The fields of a model."""

    classifier_pooling: str | None = field(ClassifierPooling())
    classifier_bias: bool = told_by_tensors("classifier_bias", "cls.bias")
    norm_bias: bool = fixed(False, name="norm_bias")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; the first layer reads the norm of the embeddings."""
    yield weight("embeddings.tok_embeddings", "token_embd")
    yield norm_entry("embeddings.norm", "token_embd_norm")
    yield norm_entry("final_norm", "output_norm")
    for i in range(c.num_hidden_layers):
        first = "layers.0.attn_norm.weight", "blk.0.attn_norm.weight"
        yield from decoder.norms(i, {"mlp_norm": "ffn_norm"}, layers="layers")
        yield from decoder.matrices(i, PARTS, layers="layers")
        if i > 0:
            yield from decoder.norms(i, {"attn_norm": "attn_norm"}, layers="layers")
        else:
            yield vector(*first, optional=True)
    if c.head is not None:
        yield weight("head.dense", "cls")
        yield bias("head.dense", "cls", optional=not c.classifier_bias)
        yield norm_entry("head.norm", "cls.norm")
        yield weight("classifier", "cls.output")
        yield bias("classifier", "cls.output")


def embed(g: Builder, c: Config, w: Weights) -> Value:
    """Return the rows of the token table, normalised."""
    return norm(g, c, w, g.embed(w.embedding(c)), "token_embd_norm")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    name, local = f"blk.{i}.attn_norm", c.is_local(i)
    x = norm(g, c, w, h, name) if i > 0 or w.has(f"{name}.weight") else h
    rope = c.rope_local if local else c.rope
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
    a = blocks.local_attention(g, c, q, k, v, window=c.sliding_window if local else 0)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    unit = g.swiglu if c.hidden_act == "silu" else g.exact_geglu
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, unit, add=h)


FAMILY = EncoderFamily(
    "modern-bert", ("modernbert",), "ModernBert", "ModernBERT", Config, tensors, layer, embed,
    blocks.final_norm, spelled=encoder.without_prefix("model."), ignored=("decoder.*", "head.*"),
    prefix="model.",
)  # fmt: skip
