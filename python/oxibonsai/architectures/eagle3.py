"""EAGLE-3: a layer that proposes token after token from the model's hidden states (Li et al. 2025).

The layer is Llama's, but its attention reads two rows side by side: the embedding of a token, and a
state. For a token of the text the state is made of hidden states of the model before it, of a low, a
middle and a high layer; for a token of the proposal it is the layer's own output.

A drafter is no model of its own: it lacks the token table, mostly, and always the hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.drafting import (
    HIDDEN,
    LOGITS,
    STATES,
    DrafterConfig,
    common_fields,
)
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.sources import Keys
from oxibonsai.graph import Builder

NAME = "eagle3"


@dataclass(frozen=True, kw_only=True)
class Config(DrafterConfig):
    """The fields of a drafter.

    Attributes:
        norm_before_fc: Whether the model's hidden states are normalised before they are projected.
        norm_before_residual: Whether the layer adds its attention to the normalised state.
    """

    norm_before_fc: bool
    norm_before_residual: bool


def read_config(keys: Keys, vocabulary: int) -> Config:
    """Return the config that a file says.

    Args:
        keys: Of the file.
        vocabulary: Tokens of the model.

    Raises:
        FormatError: A key is missing or makes no sense.
        UnsupportedError: A key asks for what is not there.
    """
    keys.get("target_hidden_size")  # told by the tensors
    fields = common_fields(keys, NAME, vocabulary, "target_layers", "extract_layers")
    if fields["num_hidden_layers"] != 1:
        raise keys.unsupported(
            f"it has {fields['num_hidden_layers']} layers; known are drafters of one"
        )
    return Config(
        **fields,
        rope=keys.rope(fields["head_dim"], interleaved=True),
        norm_before_fc=keys.flag("norm_before_fc", False),
        norm_before_residual=keys.flag("norm_before_residual", False),
    )


def drafting_pass(g: Builder, c: Config, w: Weights, width: int | None) -> None:
    """Describe the layer, from tokens and states to ``hidden`` and ``logits`` of each wanted row.

    Args:
        g: Of the pass.
        c: The drafter's config.
        w: Its tensors; those of the table and of the output matrix may be the model's.
        width: Columns of the model's hidden states: the input ``states`` is
            [tokens, target_layers * width]. None: it is the drafter's own, [tokens, hidden].
    """
    hidden, b = c.hidden_size, "blk.0"
    state = g.input(STATES, hidden if width is None else len(c.target_layers) * width)
    if width is not None:
        if c.norm_before_fc:
            state = norm(g, c, w, state, "enc.output_norm")
        (state,) = g.linear(state, w.matrix("fc", hidden, state.cols))
    token = norm(g, c, w, g.embed(w.embedding(c)), f"{b}.attn_norm")
    normed = norm(g, c, w, state, f"{b}.attn_norm_2")
    kv = c.num_key_value_heads * c.head_dim
    q, k, v = g.linear(
        g.join_heads(token, normed, 1),
        w.matrix(f"{b}.attn_q", c.num_attention_heads * c.head_dim, 2 * hidden),
        w.matrix(f"{b}.attn_k", kv, 2 * hidden),
        w.matrix(f"{b}.attn_v", kv, 2 * hidden),
    )
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = g.attention(q, k, v, layer=0, head_dim=c.head_dim, scale=c.attention_scale)
    h = g.add(normed if c.norm_before_residual else state, blocks.attention_output(g, c, w, a, 0))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    h = g.select_outputs(g.add(h, blocks.gated_mlp(g, c, w, x, 0, g.swiglu)))
    g.output(HIDDEN, h)
    x = norm(g, c, w, h, "output_norm")
    if c.draft_vocab_size == c.vocab_size:
        g.output(LOGITS, blocks.logits(g, c, w, x))
    else:
        (logits,) = g.linear(x, w.matrix("output", c.draft_vocab_size, hidden))
        g.output(LOGITS, logits)
