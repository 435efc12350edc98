"""Parts that drafters share, and multi-token prediction (MTP).

MTP is a layer past those of the pass that guesses the token after the next one: it reads a token's hidden
states and the token after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.sources import Keys
from oxibonsai.graph import Builder, RopeConfig, Value

# The input and the outputs of the pass.
STATES, LOGITS, HIDDEN = "states", "logits", "hidden"

# The pass of one layer, of any family, over weights that suit it.
DraftingLayer = Callable[[Builder, Any, Any, int, Value], Value]


@dataclass(frozen=True, kw_only=True)
class DrafterConfig:
    """The fields of drafters with layers of their own, that read hidden states of the model's layers.

    Attributes:
        target_layers: The model's layers whose inputs it reads.
        draft_vocab_size: Tokens that it can propose.
    """

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float
    attention_scale: float
    target_layers: tuple[int, ...]
    rope: RopeConfig
    logit_scale: float = 1.0
    final_logit_softcapping: float = 0.0
    layer_norm_eps: float = 0.0


def common_fields(
    keys: Keys, architecture: str, vocabulary: int, *layers_keys: str
) -> dict[str, Any]:
    """Return the fields of :class:`DrafterConfig` without a default, but for the rotary embedding.

    Args:
        keys: Of the drafter's file.
        architecture: Of the drafter.
        vocabulary: Tokens of the model.
        layers_keys: What the key of the target layers may be called.

    Raises:
        FormatError: A key is missing or makes no sense.
        UnsupportedError: Keys and values are of different lengths.
    """
    heads = keys.integer("attention.head_count")
    kv_heads = keys.integer("attention.head_count_kv", heads)
    head_dim = keys.integer("attention.key_length", keys.integer("embedding_length") // heads)
    if keys.integer("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("keys and values of different lengths are not supported")
    if heads % kv_heads != 0:
        raise keys.fail(f"{heads} attention heads are no multiple of {kv_heads} key-value heads")
    return {
        "num_hidden_layers": keys.layers(),
        "hidden_size": keys.integer("embedding_length"),
        "intermediate_size": keys.integer("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        "draft_vocab_size": (
            keys.tensor_shape("d2t")[0] if "d2t" in keys.tensor_names else vocabulary
        ),
        "rms_norm_eps": keys.positive("attention.layer_norm_rms_epsilon"),
        "attention_scale": head_dim**-0.5,
        "target_layers": target_layers(keys, architecture, layers_keys),
    }


def target_layers(keys: Keys, architecture: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the model's layers whose inputs a drafter reads.

    Args:
        keys: Of the drafter's file.
        architecture: Of the drafter.
        names: What the key may be called.

    Raises:
        FormatError: The key is missing, or no list of layers.
    """
    name = next((n for n in names if keys.has(n)), names[0])
    found = keys.get(name)
    values = found.tolist() if isinstance(found, np.ndarray) else found
    if not are_layers(values):
        raise keys.fail(f"{architecture}.{name} is {found!r}, no list of the model's layers")
    return tuple(values)


def are_layers(values: Any) -> bool:
    """Return whether a value is a list of layers, with at least one in it."""
    listed = isinstance(values, list) and bool(values)
    return listed and all(type(v) is int and v >= 0 for v in values)


class OwnCache(Builder):
    """A builder of such a layer, which has a cache of its own, whichever layer of the model it is."""

    def attention(self, *args: Any, layer: int, **options: Any) -> Value:
        """Return attention over the only layer of the cache."""
        return super().attention(*args, layer=0, **options)


def drafting_pass(g: OwnCache, c: Any, w: Weights, layer: DraftingLayer) -> None:
    """Describe the layer past those of the pass, from tokens and hidden states to logits.

    The input ``states`` is [tokens, hidden], of the token before each, after the final norm; the outputs
    are ``hidden`` [outputs, hidden] and ``logits`` [outputs, vocabulary].

    Args:
        g: Of the pass.
        c: The config of a model that has such a layer.
        w: Its tensors; those of the table and of the output matrix may be the model's.
        layer: The layer's own attention and feed-forward part.
    """
    number, hidden = c.num_hidden_layers, c.hidden_size
    b = f"blk.{number}.nextn"

    def normed(x: Value, name: str) -> Value:
        return g.rms_norm(x, w.vector(f"{name}.weight", hidden), c.rms_norm_eps)

    table = w.embedding(c)
    if w.has(f"{b}.embed_tokens.weight"):
        table = w.matrix(f"{b}.embed_tokens", c.vocab_size, hidden)
    token = normed(g.embed(table), f"{b}.enorm")
    state = normed(g.input(STATES, hidden), f"{b}.hnorm")
    (h,) = g.linear(g.join_heads(token, state, 1), w.matrix(f"{b}.eh_proj", hidden, 2 * hidden))
    h = layer(g, c, w, number, h)
    own_norm = w.has(f"{b}.shared_head_norm.weight")
    h = normed(g.select_outputs(h), f"{b}.shared_head_norm" if own_norm else "output_norm")
    g.output(HIDDEN, h)
    if w.has(f"{b}.shared_head_head.weight"):
        (logits,) = g.linear(h, w.matrix(f"{b}.shared_head_head", c.vocab_size, hidden))
        g.output(LOGITS, logits)
    else:
        g.output(LOGITS, blocks.logits(g, c, w, h))
