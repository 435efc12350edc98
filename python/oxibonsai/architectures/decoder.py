"""Parts that most decoders share: their fields, the names of their tensors, the usual layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Attending, Rotated, Weights
from oxibonsai.architectures.schema.fields import (
    COUNT,
    EPSILON,
    POSITIVE_EPSILON,
    GgufKeys,
    Kind,
    Known,
    Stated,
    constant,
    count,
    field,
    real,
    told_by_tensors,
)
from oxibonsai.architectures.schema.operations import Operation, PermuteGrid
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import FromConfig, Tensor, bias, norm, weight
from oxibonsai.graph import Builder, RopeConfig, Value

MOST_LAYERS = 9999
# Each layer has tensors, and the token table has the vocabulary's rows, so that no key can claim more.
LAYER_COUNT = Kind(
    "u32",
    lambda config, value, name: config.count(value, name, MOST_LAYERS),
    lambda keys, key, default: keys.layers(),
)
VOCABULARY = Kind(
    "u32", ConfigJson.count, lambda keys, key, default: keys.tensor_shape("token_embd.weight")[0]
)


def layer_count(*names: str, **more: Any) -> Any:
    """Return the field of the number of layers."""
    return field(Stated(LAYER_COUNT, names, "block_count", **more))


def vocabulary(*names: str) -> Any:
    """Return the field of the number of tokens: ``vocab_size`` where no name is given."""
    return field(Stated(VOCABULARY, names or ("vocab_size",), "vocab_size"))


def key_value_heads(*names: str, **more: Any) -> Any:
    """Return the field of the heads of keys and values: as many as there are heads where nothing says."""

    def as_many_as_heads(known: Known) -> int:
        heads: int = known["num_attention_heads"]
        return heads

    usual = {"default": as_many_as_heads, "key_default": as_many_as_heads}
    return field(Stated(COUNT, names, "attention.head_count_kv", **{**usual, **more}))


class KeyValueHeads(ABC):
    """A field of the heads of keys and values, which ``config.json`` says in a way of its own."""

    @abstractmethod
    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""

    @abstractmethod
    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("attention.head_count_kv", known["num_attention_heads"])

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.head_count_kv": (value, "u32")}


@dataclass(frozen=True)
class HeadDim:
    """The columns of a head: stated, or the hidden size shared out among the heads.

    Attributes:
        written: Whether ``config.json`` gets it.
        keyed: Whether a file gets it.
        shared: Whether all layers have the same number of heads, which keys and values must divide.
    """

    written: bool = True
    keyed: bool = True
    shared: bool = True

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        hidden, heads = known["hidden_size"], known["num_attention_heads"]
        if (stated := config.get("head_dim")) is not None:
            width = config.count(stated, "head_dim")
        elif hidden % heads != 0:
            raise config.fail(f"hidden_size {hidden} is no multiple of {heads} heads")
        else:
            width = int(hidden // heads)
        if problem := self._problem(known):
            raise config.fail(problem)
        return width

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, if it is written."""
        return {"head_dim": value} if self.written else {}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says of keys and of values."""
        hidden, heads = known["hidden_size"], known["num_attention_heads"]
        width = keys.integer(
            "attention.key_length", hidden // heads if hidden % heads == 0 else None
        )
        if keys.integer("attention.value_length", width) != width:
            raise keys.unsupported("keys and values of different lengths are not supported")
        if problem := self._problem(known):
            raise keys.fail(problem)
        return width

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys of both lengths, if files get them."""
        if not self.keyed:
            return {}
        lengths = ("attention.key_length", "attention.value_length")
        return dict.fromkeys(lengths, (value, "u32"))

    def _problem(self, known: Known) -> str:
        """Return what is wrong with the numbers of heads; empty: nothing is."""
        if not self.shared:
            return ""
        heads, groups = known["num_attention_heads"], known["num_key_value_heads"]
        if heads % groups == 0:
            return ""
        return f"{heads} attention heads are no multiple of {groups} key-value heads"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that all decoders have, in the order of a file's keys."""

    num_hidden_layers: int = layer_count("num_hidden_layers")
    max_position_embeddings: int = count("max_position_embeddings", "context_length")
    hidden_size: int = count("hidden_size", "embedding_length")
    intermediate_size: int = count("intermediate_size", "feed_forward_length")
    num_attention_heads: int = count("num_attention_heads", "attention.head_count")
    num_key_value_heads: int = key_value_heads("num_key_value_heads")
    head_dim: int = field(HeadDim())
    vocab_size: int = vocabulary()


@dataclass(frozen=True, kw_only=True)
class RmsNormed(Sizes):
    """Sizes of a model whose norms are RMSNorms."""

    rms_norm_eps: float = real(
        "rms_norm_eps", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-6
    )
    layer_norm_eps: float = constant(0.0)


def layer_norm_epsilon(*names: str) -> Any:
    """Return the field of the epsilon of LayerNorms, by its name in ``config.json``, if it has one."""
    key = "attention.layer_norm_epsilon"
    return real(names, key, POSITIVE_EPSILON, default=1e-5)


def root_of_head_dim(known: Known) -> float:
    """Return the usual factor of scores."""
    return float(known["head_dim"] ** -0.5)


def attention_scale() -> Any:
    """Return the field of a factor of scores that ``config.json`` does not state."""
    usual: dict[str, Any] = dict.fromkeys(("default", "key_default"), root_of_head_dim)
    return real((), "attention.scale", unsaid=True, **usual)


def tied(default: bool = False) -> Any:
    """Return the field that says whether the token table is the output matrix, too."""
    return told_by_tensors("tie_word_embeddings", "output.weight", absent=True, default=default)


@dataclass(frozen=True, kw_only=True)
class LayerNormed(Sizes):
    """Sizes of a model whose norms are LayerNorms."""

    rms_norm_eps: float = constant(0.0)
    layer_norm_eps: float = layer_norm_epsilon("layer_norm_eps")


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Values that shared passes read, as most decoders have them; a family restates what differs."""

    tie_word_embeddings: bool = tied()
    attention_scale: float = attention_scale()
    sliding_window: int = constant(0)
    clamp_kqv: float = constant(0.0)
    alibi_max_bias: float = constant(0.0)
    attn_logit_softcapping: float = constant(0.0)
    final_logit_softcapping: float = constant(0.0)
    logit_scale: float = constant(1.0)


@dataclass(frozen=True, kw_only=True)
class Decoder(Constants, RmsNormed):
    """Fields of a decoder whose norms are RMSNorms."""

    rope: RopeConfig


@dataclass(frozen=True, kw_only=True)
class LayerNormDecoder(Constants, LayerNormed):
    """Fields of a decoder whose norms are LayerNorms."""

    rope: RopeConfig


QKV = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
ATTENTION = {**QKV, "self_attn.o_proj": "attn_output"}
MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
NORMS_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
LAYERS = "model.layers"


def outside(
    c: Any,
    *norm_operations: Operation,
    embedding: str = "model.embed_tokens",
    final: str = "model.norm",
    biased: bool = False,
) -> Iterator[Tensor]:
    """Yield what stands before the layers and behind them, where the norm may be biased."""
    yield weight(embedding, "token_embd")
    yield norm(final, "output_norm", *norm_operations)
    if biased:
        yield bias(final, "output_norm")
    yield weight("lm_head", "output", optional=c.tie_word_embeddings)


def norms(
    i: int,
    names: Mapping[str, str],
    *operations: Operation,
    biased: bool = False,
    layers: str = LAYERS,
) -> Iterator[Tensor]:
    """Yield a layer's norms, by their names on both sides; biased ones have biases in all models."""
    for parameter, tensor in names.items():
        yield norm(f"{layers}.{i}.{parameter}", f"blk.{i}.{tensor}", *operations)
        if biased:
            yield bias(f"{layers}.{i}.{parameter}", f"blk.{i}.{tensor}")


def matrices(
    i: int,
    names: Mapping[str, str],
    operations: Mapping[str, tuple[Operation, ...]] | None = None,
    *,
    biased: bool | None = None,
    layers: str = LAYERS,
) -> Iterator[Tensor]:
    """Yield the matrices of a layer, by their names on both sides.

    Args:
        i: The layer.
        names: GGUF's by Hugging Face's.
        operations: Over rows of weights and biases, by GGUF's names; those left out are as they are.
        biased: Whether there are biases; None: the family has none.
        layers: What the names of all layers begin with.
    """
    for parameter, tensor in names.items():
        both = f"{layers}.{i}.{parameter}", f"blk.{i}.{tensor}"
        steps = (operations or {}).get(tensor, ())
        yield weight(*both, *steps)
        if biased is not None:
            yield bias(*both, *steps, optional=not biased)


def biases(
    i: int, names: Mapping[str, str], parts: Collection[str] = (), layers: str = LAYERS
) -> Iterator[Tensor]:
    """Yield the biases that all models have, of all parts or of some, by GGUF's names."""
    for parameter, tensor in names.items():
        if not parts or tensor in parts:
            yield bias(f"{layers}.{i}.{parameter}", f"blk.{i}.{tensor}")


def pairs(c: Attending) -> dict[str, tuple[Operation, ...]]:
    """Return what makes pairs of neighbours of the halves of each head of q and k."""

    def interleave(heads: int) -> tuple[Operation, ...]:
        return (PermuteGrid((heads, 2, c.head_dim // 2), (0, 2, 1)),)

    return {
        "attn_q": interleave(c.num_attention_heads),
        "attn_k": interleave(c.num_key_value_heads),
    }


def rope_factors(c: Rotated) -> Iterator[FromConfig]:
    """Yield Llama 3's table of factors, if the model has one."""
    if c.rope.frequency_factors:
        yield FromConfig("rope_freqs.weight", np.array(c.rope.frequency_factors, np.float32))


def layer(g: Builder, c: Decoder | LayerNormDecoder, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i: attention, then an MLP with SiLU units."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i, window=c.sliding_window)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)


def norms_after(g: Builder, c: Decoder, w: Weights, i: int, h: Value, a: Value) -> Value:
    """Return the hidden states after layer i, whose halves end with norms, from its attention."""
    a = blocks.attention_output(g, c, w, a, i)
    h = g.add(h, apply_norm(g, c, w, a, f"blk.{i}.post_attention_norm"))
    x = blocks.gated_mlp(g, c, w, h, i, g.swiglu)
    return g.add(h, apply_norm(g, c, w, x, f"blk.{i}.post_ffw_norm"))


def squared_relu_layer(
    g: Builder, c: Decoder | LayerNormDecoder, w: Weights, i: int, h: Value
) -> Value:
    """Return the hidden states after layer i: attention, then an MLP without a gate."""
    a = blocks.rotated_attention(g, c, w, apply_norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = apply_norm(g, c, w, h, f"blk.{i}.ffn_norm")
    return blocks.plain_mlp(g, c, w, x, i, g.relu2, add=h)


def parallel_layer(g: Builder, c: LayerNormDecoder, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i, of which both halves read one norm."""
    x = apply_norm(g, c, w, h, f"blk.{i}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i)
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.plain_mlp(g, c, w, x, i, g.gelu_tanh, add=h)
