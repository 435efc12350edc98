"""Multi-token prediction (MTP): a layer past those of the pass guesses the token after the next one.

It reads a token's hidden states and the token after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.graph import Builder, Value

# The input and the outputs of the pass.
STATES, LOGITS, HIDDEN = "states", "logits", "hidden"

# The pass of one layer, of any family, over weights that suit it.
DraftingLayer = Callable[[Builder, Any, Any, int, Value], Value]


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
