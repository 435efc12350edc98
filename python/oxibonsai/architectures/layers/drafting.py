"""What drafters share, and multi-token prediction (MTP).

MTP is a layer past those of the pass that guesses the token after the next one: it reads a token's hidden
states and the token after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.sources import Keys
from oxibonsai.graph import Builder, Value

# The input and the outputs of the pass.
STATES, LOGITS, HIDDEN = "states", "logits", "hidden"

# The pass of one layer, of any family, over weights that suit it.
DraftingLayer = Callable[[Builder, Any, Any, int, Value], Value]


def head_sizes(keys: Keys) -> tuple[int, int, int]:
    """Return a drafter's heads of queries, heads of keys and values, and columns of a head.

    Raises:
        FormatError: A key is missing, or the heads don't go together.
        UnsupportedError: Keys and values are of different lengths.
    """
    heads = keys.integer("attention.head_count")
    kv_heads = keys.integer("attention.head_count_kv", heads)
    head_dim = keys.integer("attention.key_length", keys.integer("embedding_length") // heads)
    if keys.integer("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("keys and values of different lengths are not supported")
    if heads % kv_heads != 0:
        raise keys.fail(f"{heads} attention heads are no multiple of {kv_heads} key-value heads")
    return heads, kv_heads, head_dim


def target_layers(keys: Keys, *names: str) -> tuple[int, ...]:
    """Return the model's layers whose inputs a drafter reads.

    Args:
        keys: Of the drafter's file.
        names: What the key may be called; the first one that is there counts.

    Raises:
        FormatError: The key is missing, or no list of layers.
    """
    name = next((n for n in names if keys.has(n)), names[0])
    found = keys.get(name)
    values = found.tolist() if isinstance(found, np.ndarray) else found
    if (
        not isinstance(values, list)
        or not values
        or not all(type(v) is int and v >= 0 for v in values)
    ):
        raise keys.fail(f"{name} is {found!r}, no list of the model's layers")
    return tuple(values)


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
