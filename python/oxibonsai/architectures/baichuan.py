"""Baichuan 1 and 2: Llama's layers; in the 13B models linear biases for positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, llama
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Computing
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Known, constant, count, field, real
from oxibonsai.architectures.schema.operations import Array, OneWay, OnPart, Split
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, weight
from oxibonsai.graph import RopeConfig

# Neither side says which kind of positions a model has: the number of layers tells the models.
LAYERS_OF_13B = 40
# Of Baichuan 2, whose output matrix has rows of length 1 when it runs.
VOCABULARY_2 = 125696
OUTPUT = {"self_attn.o_proj": "attn_output"}


def steepness(known: Known) -> float:
    """Return the steepness of linear biases; 0: there are none."""
    return 8.0 if known["num_hidden_layers"] == LAYERS_OF_13B else 0.0


@dataclass(frozen=True)
class RopeOf7B(Rope):
    """The rotary embedding of the 7B models, which the others state without having it."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        return _of_size(super().read_config_json(config, known), known)

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file describes."""
        return _of_size(super().read_gguf(keys, known), known)

    def write_gguf(self, value: RopeConfig, c: Any) -> dict[str, tuple[Any, str]]:
        """Return the keys that describe the embedding, and the order of q and k that it is for."""
        return {
            "tensor_data_layout": ("Meta AI original pth", "str"),
            **super().write_gguf(value, c),
            "rope.dimension_count": (c.head_dim, "u32"),
        }

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"rope_theta": value.theta}


def _of_size(rope: RopeConfig, known: Known) -> RopeConfig:
    return rope.without() if known["num_hidden_layers"] == LAYERS_OF_13B else rope


@dataclass(frozen=True)
class UnitRows(Computing):
    """Divides each row by its length, in float64 and rounded once."""

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the rows of length 1."""
        return [self._divided(a) for a in arrays]

    @staticmethod
    def _divided(rows: Array) -> Array:
        lengths = np.sqrt(np.sum(np.square(rows, dtype=np.float64), axis=1, keepdims=True))
        unit: Array = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
        return unit

    @property
    def inverse(self) -> UnitRows:
        """Return the step itself: rows of length 1 stay as they are."""
        return self


@dataclass(frozen=True, kw_only=True)
class Config(llama.Config):
    """The fields of a model."""

    max_position_embeddings: int = count(
        ("max_position_embeddings", "model_max_length"), "context_length"
    )
    alibi_max_bias: float = real((), default=steepness, key_default=steepness)
    attention_bias: bool = constant(False)
    rope: RopeConfig = field(RopeOf7B(("default",), interleaved=True, counted=True, theta=10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    unit = (OneWay((UnitRows(),)),) if c.vocab_size == VOCABULARY_2 else ()
    yield weight("model.embed_tokens", "token_embd")
    yield norm("model.norm", "output_norm")
    yield weight("lm_head", "output", *unit, optional=c.tie_word_embeddings)
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    pairs = decoder.pairs(c)
    apart = (
        Split((q, kv, kv)),
        *(OnPart(0, step) for step in pairs["attn_q"]),
        *(OnPart(1, step) for step in pairs["attn_k"]),
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        parts = tuple(f"blk.{i}.{part}.weight" for part in decoder.QKV.values())
        yield Tensor((f"model.layers.{i}.self_attn.W_pack.weight",), parts, apart)
        yield from decoder.matrices(i, {**OUTPUT, **decoder.MLP})


FAMILY = Family(
    "baichuan", ("baichuan",), "", "Baichuan", Config, tensors, decoder.layer,
    saved_as=llama.FAMILY,
)  # fmt: skip
