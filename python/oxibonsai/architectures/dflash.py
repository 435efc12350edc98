"""DFlash, DSpark and DFlash 2: a few layers that propose a block of tokens at once.

The layers are Qwen3's, but a block's rows see each other. They attend to keys and values that they make of
the model's own hidden states, and read the last token of the text, then masks. DSpark adds a bias by the
token before (Markov head) and an estimate of how sure each token is; DFlash 2 adds convolutions within the
block and scores of pairs of neighbours (selector).

A drafter is no model of its own: it lacks the vocabulary, mostly, and always the hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
from oxibonsai.architectures.windows import window_of
from oxibonsai.graph import Builder, RopeConfig, Value

NAME = "dflash"
# Further inputs and outputs of the passes.
GATE, ROW, BIAS, BEFORE, AFTER = "gate", "row", "bias", "before", "after"

_SELECTOR, _MARKOV = "selector_hidden.weight", "markov_w1.weight"


@dataclass(frozen=True, kw_only=True)
class Config(DrafterConfig):
    """The fields of a drafter.

    Attributes:
        block_size: Rows of a block, at most.
        mask_token_id: Stands for the tokens that are to be proposed.
        causal: Whether a block's rows see only those before them.
        anchored: Whether the row of the last token proposes, too; else the first mask is the first.
        markov_rank: Columns between the two matrices of the Markov head; 0: it has none.
        conv_taps, conv_group: Of the convolutions: rows that each reads, and channels with shared
            weights; 0: it has none.
        selector_rank, selector_top_k: Columns of a token in the selector, and how many tokens of a
            position it compares; 0: it has none.
    """

    sliding_window: int
    local_layers: tuple[bool, ...]
    block_size: int
    mask_token_id: int
    causal: bool
    anchored: bool
    markov_rank: int
    conv_taps: int
    conv_group: int
    selector_rank: int
    selector_top_k: int
    attn_logit_softcapping: float = 0.0
    clamp_kqv: float = 0.0
    alibi_max_bias: float = 0.0

    @property
    def longest(self) -> int:
        """Tokens of a proposal, at most."""
        return self.block_size if self.anchored else self.block_size - 1


def read_config(keys: Keys, vocabulary: int, mask_token_id: object) -> Config:
    """Return the config that a file says.

    Args:
        keys: Of the file.
        vocabulary: Tokens of the model.
        mask_token_id: What the file's tokenizer calls so; None: the key of the drafter says it.

    Raises:
        FormatError: A key is missing or makes no sense.
        UnsupportedError: A key asks for what is not there.
    """
    names = keys.tensor_names
    markov, selector = _MARKOV in names, _SELECTOR in names
    block = keys.integer("block_size", 16)
    own_mask = keys.get("mask_token_id")
    mask = own_mask if mask_token_id is None else mask_token_id
    if type(mask) is not int or not 0 <= mask < vocabulary:
        raise keys.fail(
            f"its mask token is {mask!r}, none of the model's {vocabulary} (tokenizer.ggml.mask_token_id)"
        )
    for known in ("target_hidden_size", "markov_rank", "has_confidence_head", "logit_scale"):
        keys.get(known)  # told by the tensors, or read below
    fields = common_fields(keys, NAME, vocabulary, "target_layers")
    window = keys.count("attention.sliding_window")
    c = Config(
        **fields,
        rope=_rope(keys, fields["head_dim"]),
        sliding_window=window,
        local_layers=keys.local_layers(fields["num_hidden_layers"] + 1) if window else (),
        block_size=block,
        mask_token_id=mask,
        causal=keys.flag("attention.causal", False),
        anchored=keys.flag("sample_from_anchor", True) and markov,
        markov_rank=keys.tensor_shape(_MARKOV)[1] if markov else 0,
        conv_taps=keys.integer("conv_kernel_size") if selector else 0,
        conv_group=keys.integer("conv_group_size") if selector else 0,
        selector_rank=keys.integer("selector_rank") if selector else 0,
        selector_top_k=keys.integer("selector_top_k") if selector else 0,
        logit_scale=keys.real("logit_scale", 1.0) or 1.0,
        final_logit_softcapping=keys.real("final_logit_softcapping", 0.0),
    )
    if block < 2:
        raise keys.fail(f"{NAME}.block_size is {block}: a block has the last token and masks")
    if selector and (c.conv_group & (c.conv_group - 1) or c.hidden_size % c.conv_group):
        raise keys.unsupported(
            f"{NAME}.conv_group_size is {c.conv_group}; known are powers of two that divide "
            f"{c.hidden_size}"
        )
    return c


def _rope(keys: Keys, head_dim: int) -> RopeConfig:
    """Return the rotary embedding; drafters of models that read pictures turn all pairs by one axis."""
    rope = keys.rope(head_dim)
    sections = keys.get("rope.dimension_sections")
    values = sections.tolist() if isinstance(sections, np.ndarray) else sections
    if values is not None and (not isinstance(values, list) or any(values[1:])):
        raise keys.unsupported(
            f"{NAME}.rope.dimension_sections is {values!r}; known are drafters that turn all pairs by one "
            "axis"
        )
    return rope


def observing_pass(g: Builder, c: Config, w: Weights, width: int) -> None:
    """Describe what takes the model's hidden states into the layers' keys and values.

    The input ``states`` is [tokens, target_layers * width]; the output ``hidden``, of rows that want one,
    is what keys and values are made of.
    """
    states = g.input(STATES, len(c.target_layers) * width)
    (x,) = g.linear(states, w.matrix("fc", c.hidden_size, states.cols))
    x = norm(g, c, w, x, "enc.output_norm")
    kv_width = c.num_key_value_heads * c.head_dim
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        k, v = g.linear(
            x,
            w.matrix(f"{b}.attn_k", kv_width, c.hidden_size),
            w.matrix(f"{b}.attn_v", kv_width, c.hidden_size),
        )
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", c.head_dim), c.rms_norm_eps)
        layer = g.add_paged_layer(c.num_key_value_heads, c.head_dim)
        g.store_kv(g.rope(k, c.rope, c.head_dim), v, layer)
    g.output(HIDDEN, g.select_outputs(x))


def drafting_pass(g: Builder, c: Config, w: Weights) -> None:
    """Describe the pass of a block, from its tokens to ``hidden`` and ``logits`` of each wanted row.

    With a selector there is ``gate``, [outputs, selector_rank], too.
    """
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        h = _layer(g, c, w, i, h)
    h = norm(g, c, w, g.select_outputs(h), "output_norm")
    g.output(HIDDEN, h)
    if c.draft_vocab_size == c.vocab_size:
        head = w.head(c)
    else:
        head = w.matrix("output", c.draft_vocab_size, c.hidden_size)
    (logits,) = g.linear(h, head)
    if c.selector_rank > 0:
        if c.logit_scale != 1.0:
            logits = g.scale(logits, c.logit_scale)
        if c.final_logit_softcapping > 0.0:
            logits = g.softcap(logits, c.final_logit_softcapping)
        (gate,) = g.linear(h, w.matrix("selector_hidden", c.selector_rank, c.hidden_size))
        g.output(GATE, gate)
    g.output(LOGITS, logits)


def markov_pass(g: Builder, c: Config, w: Weights) -> None:
    """Describe the Markov head, from tokens to their rows and the biases of the tokens after them."""
    row = g.embed(w.matrix("markov_w1", c.vocab_size, c.markov_rank))
    (bias,) = g.linear(row, w.matrix("markov_w2", c.draft_vocab_size, c.markov_rank))
    g.output(ROW, row)
    g.output(BIAS, bias)


def pair_pass(g: Builder, c: Config, w: Weights) -> None:
    """Describe the selector's tables, from tokens to their rows as the one before and the one after."""
    for output, table in ((BEFORE, "selector_predecessor"), (AFTER, "selector_successor")):
        g.output(output, g.embed(w.matrix(table, c.vocab_size, c.selector_rank)))


def _layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    x = norm(g, c, w, h, f"{b}.attn_norm")
    convolution = _Convolution(g, c, w, f"{b}.attn_conv", x)
    q, k, v = blocks.query_key_value(g, c, w, convolution.before(x), i)
    q, k = blocks.head_norms(g, c, w, q, k, i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    sinks = f"{b}.attn_sinks.weight"
    a = g.attention(
        q, k, v, layer=i, head_dim=c.head_dim, scale=c.attention_scale, window=window_of(c, i),
        sinks=w.vector(sinks, c.num_attention_heads) if w.has(sinks) else None,
    )  # fmt: skip
    h = g.add(h, convolution.after(blocks.attention_output(g, c, w, a, i)))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    convolution = _Convolution(g, c, w, f"{b}.ffn_conv", x)
    x = blocks.gated_mlp(g, c, w, convolution.before(x), i, g.swiglu)
    return g.add(h, convolution.after(x))


class _Convolution:
    """Convolutions over a block's rows before and after a part of a layer; none where there are no taps.

    The weight of a channel is its own plus that of its group, which is computed from the row.
    """

    def __init__(self, g: Builder, c: Config, w: Weights, name: str, x: Value) -> None:
        self._g, self._c = g, c
        if c.conv_taps == 0:
            return
        self._groups = c.hidden_size // c.conv_group
        rows = 2 * c.conv_taps * self._groups
        (self._of_groups,) = g.linear(x, w.matrix(f"{name}_proj", rows, c.hidden_size))
        self._own = w.floats(f"{name}_base", 2, c.conv_taps, c.hidden_size)

    def before(self, x: Value) -> Value:
        """Return what the part reads."""
        return self._convolve(x, 0)

    def after(self, x: Value) -> Value:
        """Return what is made of the part's result."""
        return self._convolve(x, 1)

    def _convolve(self, x: Value, side: int) -> Value:
        g, c = self._g, self._c
        total: Value | None = None
        for tap in range(c.conv_taps):
            first = (side * c.conv_taps + tap) * self._groups
            weight = g.select_columns(self._of_groups, first, self._groups, self._of_groups.cols)
            while weight.cols < c.hidden_size:  # each column once more beside itself
                weight = g.join_heads(weight, weight, self._groups)
            weight = g.add_vector(weight, self._own[side, tap])
            term = g.multiply(weight, self._earlier(x, tap))
            total = term if total is None else g.add(total, term)
        return x if total is None else total

    def _earlier(self, x: Value, rows: int) -> Value:
        """Return x of so many rows before; zeros before the block, whose slot holds zeros."""
        if rows == 0:
            return x
        only_first = np.zeros((x.cols, rows + 1), np.float32)
        only_first[:, 0] = 1.0
        return self._g.conv1d(x, only_first, None)
