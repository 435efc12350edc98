"""What an architecture is to everybody else, and what decoders have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxibonsai.graph import Builder, Value
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.hadamard import read_fold
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


@dataclass(frozen=True)
class Architecture:
    """One architecture; its page makes it, and ``models/__init__.py`` lists it.

    Attributes:
        read_config: The model's dimensions, from the keys of its file.
        hidden_states: The pass up to the last layer's output: [tokens, hidden].
    """

    read_config: Callable[[Keys], ModelConfig]
    hidden_states: Callable[[Builder, ModelConfig, Weights], Value]


def attention_heads(keys: Keys) -> tuple[int, int, int]:
    """Attention heads, key-value heads and the dims of each."""
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    default = hidden // heads if hidden % heads == 0 else None
    head_dim = keys.integer("attention.key_length", default)
    if keys.integer("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("keys and values of different lengths are not supported")
    kv_heads = keys.integer("attention.head_count_kv", heads)
    if heads % kv_heads != 0:
        raise keys.fail(f"{heads} attention heads are no multiple of {kv_heads} key-value heads")
    return heads, kv_heads, head_dim


def dimensions(keys: Keys) -> dict[str, Any]:
    """Fields of :class:`ModelConfig` that every architecture reads alike."""
    heads, kv_heads, head_dim = attention_heads(keys)
    file = keys.checkpoint.file
    return {
        "architecture": keys.architecture,
        "vocab_size": keys.checkpoint.shape("token_embd.weight")[0],
        "hidden_size": keys.integer("embedding_length"),
        "intermediate_size": keys.integer("feed_forward_length"),
        "num_hidden_layers": keys.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": keys.integer("context_length"),
        "attention_scale": keys.real("attention.scale", head_dim**-0.5),
        "name": str(file.get("general.name", "")),
        "hadamard": read_fold(file, keys.checkpoint.path),
    }
