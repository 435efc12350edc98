"""The interface of an architecture, and the dimensions that decoders have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures.layers.blocks import final_norm as final_norm
from oxibonsai.architectures.layers.blocks import logits as logits
from oxibonsai.architectures.layers.blocks import norm as norm
from oxibonsai.graph import Builder, Value
from oxibonsai.models.config import FULL_ATTENTION, ModelConfig
from oxibonsai.models.hadamard import read_rotation
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


@dataclass(frozen=True)
class Architecture:
    """One architecture; its page makes it, and ``models/__init__.py`` lists it.

    Attributes:
        read_config: The model's dimensions, from the keys of its file.
        hidden_states: The pass up to the last layer's output: [tokens, hidden].
        final_norm: What follows for the rows that want an output; encoders have none.
        logits: What follows that, where the model has an output matrix.
        drafting_layer: What a layer past those of the pass, which predicts a further token, makes of
            its input: [tokens, hidden]; None: the architecture has no such layers.
        encode: The pass of a prompt through an encoder, which stores what the decoder's layers attend
            to; ``hidden_states`` is then that of the decoder. None: there is no encoder.
        biases: The names of the biases that layers may have; None: any that the pass asks for.
    """

    read_config: Callable[[Keys], ModelConfig]
    hidden_states: Callable[[Builder, ModelConfig, Weights], Value]
    final_norm: Callable[[Builder, ModelConfig, Weights, Value], Value] = final_norm
    logits: Callable[[Builder, ModelConfig, Weights, Value], Value] = logits
    drafting_layer: Callable[[Builder, ModelConfig, Weights, int, Value], Value] | None = None
    encode: Callable[[Builder, ModelConfig, Weights], Value] | None = None
    biases: Callable[[ModelConfig], Iterable[str]] | None = None


def attention_heads(
    keys: Keys, kv_heads: int | None = None, heads: int | None = None
) -> tuple[int, int, int]:
    """Attention heads, key-value heads and the dims of each.

    Args:
        keys: Of the file.
        kv_heads: Where not all layers attend; None: what the file says of all.
        heads: As ``kv_heads``.
    """
    hidden, heads = keys.integer("embedding_length"), heads or keys.integer("attention.head_count")
    default = hidden // heads if hidden % heads == 0 else None
    head_dim = keys.integer("attention.key_length", default)
    if keys.integer("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("keys and values of different lengths are not supported")
    if kv_heads is None:
        kv_heads = keys.integer("attention.head_count_kv", heads)
    if heads % kv_heads != 0:
        raise keys.fail(f"{heads} attention heads are no multiple of {kv_heads} key-value heads")
    return heads, kv_heads, head_dim


def hybrid_dimensions(keys: Keys, other: str) -> dict[str, Any]:
    """Return the dimensions of a model some of whose layers attend; the others are of type ``other``."""
    counts = keys.counts("attention.head_count_kv", keys.layers())
    types = tuple(FULL_ATTENTION if n > 0 else other for n in counts)
    kv_heads, heads = _of_attention(keys, "head_count_kv"), _of_attention(keys, "head_count")
    return {**dimensions(keys, kv_heads, heads=heads), "layer_types": types}


def _of_attention(keys: Keys, name: str) -> int:
    """Return a number that all layers share which have any."""
    found = set(keys.counts(f"attention.{name}", keys.layers())) - {0}
    if len(found) != 1:
        raise keys.fail(
            f"{keys.architecture}.attention.{name} has the values {sorted(found)}, but all layers that "
            "attend need the same one"
        )
    return found.pop()


def dimensions(
    keys: Keys,
    kv_heads: int | None = None,
    *,
    heads: int | None = None,
    head_dim: int | None = None,
    ff: int | None = None,
) -> dict[str, Any]:
    """Fields of :class:`ModelConfig` that every architecture reads alike.

    Args:
        keys: Of the file.
        kv_heads: Where not all layers attend; None: what the file says of all.
        heads: As ``kv_heads``.
        head_dim: Of keys in the cache, where latent attention makes it; None: what the file says.
        ff: The feed-forward length; None: what the file says of all layers.
    """
    if head_dim is None:
        heads, kv_heads, head_dim = attention_heads(keys, kv_heads, heads)
    else:
        heads = keys.integer("attention.head_count")
    return {
        **_sizes(keys, head_dim),
        "intermediate_size": keys.integer("feed_forward_length") if ff is None else ff,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


def varied_dimensions(keys: Keys) -> dict[str, Any]:
    """Return the dimensions of a model whose heads and widths differ by layer; some may have none."""
    layers = keys.layers()
    heads = keys.counts("attention.head_count", layers)
    kv_heads = keys.counts("attention.head_count_kv", layers)
    widths = keys.counts("feed_forward_length", layers)
    if min(max(heads), max(kv_heads), max(widths)) == 0:
        raise keys.fail("no layer has heads, or none has a feed-forward part")
    for count, shared in zip(heads, kv_heads, strict=True):
        if shared > count or (shared > 0 and count % shared != 0):
            raise keys.fail(f"{count} attention heads are no multiple of {shared} key-value heads")
    hidden = keys.integer("embedding_length")
    default = hidden // heads[0] if heads[0] > 0 and hidden % heads[0] == 0 else None
    head_dim = keys.integer("attention.key_length", default)
    if keys.integer("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("keys and values of different lengths are not supported")
    return {
        **_sizes(keys, head_dim),
        "intermediate_size": max(widths),
        "num_attention_heads": max(heads),
        "num_key_value_heads": max(kv_heads),
        "layer_sizes": tuple(zip(heads, kv_heads, widths, strict=True)),
    }


def _sizes(keys: Keys, head_dim: int) -> dict[str, Any]:
    file = keys.checkpoint.file
    return {
        "architecture": keys.architecture,
        "vocab_size": keys.checkpoint.shape("token_embd.weight")[0],
        "hidden_size": keys.integer("embedding_length"),
        "num_hidden_layers": keys.layers(),
        "head_dim": head_dim,
        "max_position_embeddings": keys.integer("context_length"),
        "attention_scale": keys.real("attention.scale", head_dim**-0.5),
        "name": str(file.get("general.name", "")),
        "hadamard": read_rotation(file, keys.checkpoint.path),
    }


def check_constants(keys: Keys, c: ModelConfig) -> None:
    """FormatError for a constant with which no model computes anything that makes sense."""
    if c.attention_scale <= 0.0:
        raise keys.fail(f"its factor of attention scores is {c.attention_scale}, not above zero")
    others = {
        "epsilon of RMS norms": c.rms_norm_eps,
        "epsilon of layer norms": c.layer_norm_eps,
        "cap of attention scores": c.attn_logit_softcapping,
        "cap of logits": c.final_logit_softcapping,
    }
    for name, value in others.items():
        if value < 0.0:
            raise keys.fail(f"its {name} is {value}, below zero")
