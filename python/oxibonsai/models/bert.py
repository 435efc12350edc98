"""BERT and its kin: encoders with a norm after each half of a layer.

BERT (MiniLM, BGE, E5) has learned positions; Nomic BERT rotates queries and keys and has a gated
MLP, or experts in every second layer; Jina BERT 2 has linear biases and a gated MLP; Jina
Embeddings 3 (an XLM-RoBERTa) rotates too. In two encoders of long texts with learned positions a
token sees a part of the others: in BigBird blocks, in Longformer a window and global tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oxibonsai.architectures.layers.blocks import (
    attention_output,
    gated_mlp,
    local_attention,
    plain_mlp,
    query_key_value,
)
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models import experts
from oxibonsai.models.architecture import Architecture, dimensions
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.experts import read_experts
from oxibonsai.models.keys import Keys
from oxibonsai.models.pooled import add_token_types, read_classifier
from oxibonsai.models.weights import Weights

_NO_ROPE = RopeConfig(0, 10000.0)
# Of Jina BERT 2, in every file; the file may say it too.
_ALIBI_MAX_BIAS = 8.0
# Of BigBird's pattern, as the op has it.
_MOST_RANDOM_BLOCKS = 64
FeedForward = Callable[[Value, int], Value]
# Attention of a layer with queries, keys and values; the first argument is what these are made of.
Attention = Callable[[Value, Value, Value, Value, int], Value]


def _shared(keys: Keys, rope: RopeConfig) -> dict[str, Any]:
    head = read_classifier(keys)
    return {
        **dimensions(keys),
        "causal": keys.causal(False),
        "rms_norm_eps": 0.0,
        "layer_norm_eps": keys.positive("attention.layer_norm_epsilon"),
        "pooling": keys.pooling("mean"),
        "classifier": head,
        "token_types": 1 if head is None else _token_types_of_pairs(keys),
        "rope": rope,
    }


def _token_types_of_pairs(keys: Keys) -> int:
    """Return the token types of a classifier's pairs; 1 where separators alone tell texts apart."""
    table, file = "token_types.weight", keys.checkpoint.file
    if file.text("tokenizer.ggml.model", "bert") not in ("bert", "no_vocab"):
        return 1
    return keys.checkpoint.shape(table)[0] if keys.checkpoint.has(table) else 1


def read_config(keys: Keys) -> ModelConfig:
    """Positions are learned: nothing is rotated."""
    return ModelConfig(**_shared(keys, _NO_ROPE))


def read_rotary_config(keys: Keys) -> ModelConfig:
    """Rotate queries and keys."""
    return ModelConfig(**_shared(keys, keys.rope(dimensions(keys)["head_dim"])))


def read_expert_config(keys: Keys) -> ModelConfig:
    """Every n-th layer has experts, from the second on; those have no gate."""
    c = read_rotary_config(keys)
    every = keys.integer("moe_every_n_layers")
    if every < 2:
        raise keys.unsupported(
            f"{keys.architecture}.moe_every_n_layers is {every}; known are 2 and more"
        )
    made = read_experts(keys, normalize=False, ff=c.intermediate_size)
    period = tuple(i % every == 1 for i in range(c.num_hidden_layers))
    return replace(c, experts=made, expert_layers=period)


def read_alibi_config(keys: Keys) -> ModelConfig:
    """Biases by distance stand for positions."""
    bias = keys.positive("attention.max_alibi_bias", _ALIBI_MAX_BIAS)
    return ModelConfig(**_shared(keys, _NO_ROPE), alibi_max_bias=bias)


def read_block_config(keys: Keys) -> ModelConfig:
    """Blocks of tokens, where the file has their size; short texts have none."""
    c = read_config(keys)
    act = keys.text("hidden_activation", "gelu_new", ("gelu", "gelu_new"))
    head = read_classifier(keys, activation=act)
    block_size, random_blocks = _blocks(keys, c.max_position_embeddings)
    return replace(
        c,
        block_size=block_size,
        num_random_blocks=random_blocks,
        hidden_act=act,
        embedding_scale=keys.positive("embedding_scale", 1.0),
        classifier=head,
        token_types=1,  # its tokenizer has separators alone
    )


def _blocks(keys: Keys, positions: int) -> tuple[int, int]:
    """Tokens of a block and the number of random ones; zeros where no text has blocks."""
    if not keys.has("attention.block_size"):
        return 0, 0
    size, random = keys.integer("attention.block_size"), keys.count("attention.random_block_count")
    if (5 + 2 * random) * size >= positions:  # no text is long enough for them
        return 0, 0
    if random > _MOST_RANDOM_BLOCKS:
        raise keys.unsupported(
            f"{keys.architecture}.attention.random_block_count is {random}; known are 0 to "
            f"{_MOST_RANDOM_BLOCKS}"
        )
    return size, random


def read_window_config(keys: Keys) -> ModelConfig:
    """Return a window for each layer, which counts the keys on both sides, and global tokens."""
    c = read_config(keys)
    key = "attention.sliding_window"
    windows = keys.counts(key, c.num_hidden_layers)
    for window in windows:
        if window == 0 or window % 2 != 0:
            raise keys.fail(f"{keys.architecture}.{key} is {window}, not even and above 0")
    count = keys.count("attention.global_token_count", 1)
    if count > c.max_position_embeddings:
        raise keys.fail(
            f"{keys.architecture}.attention.global_token_count is {count}, of a text of up to "
            f"{c.max_position_embeddings} tokens"
        )
    return replace(
        c,
        layer_windows=tuple(n // 2 for n in windows),
        global_tokens=count,
        token_types=1,  # its tokenizer has separators alone
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]; positions are learned."""
    h = _embed_with_positions(g, c, w)
    return _layers(g, c, w, h, lambda x, i: plain_mlp(g, c, w, x, i, g.gelu, add=x))


def block_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of BigBird."""
    activation = g.gelu if c.hidden_act == "gelu" else g.gelu_tanh
    h = _embed_with_positions(g, c, w)
    return _layers(g, c, w, h, lambda x, i: plain_mlp(g, c, w, x, i, activation, add=x))


def window_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of Longformer, whose global tokens have projections of their own."""

    def attend(h: Value, q: Value, k: Value, v: Value, layer: int) -> Value:
        window, tokens = c.layer_windows[layer], c.global_tokens
        if tokens == 0:
            return local_attention(g, c, q, k, v, window=window)
        sizes: dict[str, Any] = {"head_dim": c.head_dim, "scale": c.attention_scale}
        sizes["global_tokens"] = tokens
        names = [f"blk.{layer}.attn_{part}_global" for part in "qkv"]
        weights = [w.matrix(name, q.cols, c.hidden_size) for name in names]
        made = g.linear(h, *weights, bias=[w.bias(name, q.cols) for name in names])
        of_global = g.attend_local(*made, **sizes, queries="global")
        # Each result is zero where the other is not.
        return g.add(g.attend_local(q, k, v, **sizes, queries="others", window=window), of_global)

    h = _embed_with_positions(g, c, w)
    return _layers(g, c, w, h, lambda x, i: plain_mlp(g, c, w, x, i, g.gelu, add=x), attend)


def rotary_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of Jina Embeddings 3."""
    h = _embed(g, c, w)
    return _layers(g, c, w, h, lambda x, i: plain_mlp(g, c, w, x, i, g.gelu, add=x))


def nomic_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of Nomic BERT."""
    h = _embed(g, c, w)
    return _layers(g, c, w, h, lambda x, i: gated_mlp(g, c, w, x, i, g.swiglu, add=x))


def nomic_expert_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of Nomic BERT with experts."""

    def feed_forward(x: Value, layer: int) -> Value:
        if not c.expert_layers[layer]:
            return plain_mlp(g, c, w, x, layer, g.gelu, add=x)
        routing = experts.route(g, c, w, x, layer)
        return g.add(x, experts.plain_experts(g, c, w, x, layer, routing, g.gelu))

    return _layers(g, c, w, _embed(g, c, w), feed_forward)


def jina_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of Jina BERT 2, whose MLP has a gate in most models."""
    ff = c.intermediate_size

    def feed_forward(x: Value, layer: int) -> Value:
        up = f"blk.{layer}.ffn_up.weight"
        if w.has(f"blk.{layer}.ffn_gate.weight") or w.shape(up)[0] != ff:
            return gated_mlp(g, c, w, x, layer, g.exact_geglu, add=x)
        return plain_mlp(g, c, w, x, layer, g.gelu, add=x)

    return _layers(g, c, w, _embed(g, c, w), feed_forward)


def _embed_with_positions(g: Builder, c: ModelConfig, w: Weights) -> Value:
    positions = w.matrix("position_embd", c.max_position_embeddings, c.hidden_size)
    return g.add(_embed(g, c, w), g.embed_positions(positions))


def _embed(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Token embeddings, plus those of types: the first, where the pass does not tell them apart."""
    h = g.embed(w.embedding(c))
    if c.embedding_scale != 1.0:
        h = g.scale(h, c.embedding_scale)
    if c.token_types > 1:
        return add_token_types(g, c, w, h)
    if w.has("token_types.weight"):
        h = g.add_vector(h, w.first_row("token_types", c.hidden_size))
    return h


def _norm(g: Builder, c: ModelConfig, w: Weights, x: Value, name: str) -> Value:
    weight, bias = w.vector(f"{name}.weight", x.cols), w.vector(f"{name}.bias", x.cols)
    return g.layer_norm(x, weight, bias, c.layer_norm_eps)


def _layers(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    h: Value,
    feed_forward: FeedForward,
    attend: Attention | None = None,
) -> Value:
    """All layers over embeddings; ``feed_forward`` gives a layer's MLP plus what it reads."""
    h = _norm(g, c, w, h, "token_embd_norm")
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        q, k, v = query_key_value(g, c, w, h, i)
        if w.has(f"{b}.attn_q_norm.weight"):
            q, k = _norm(g, c, w, q, f"{b}.attn_q_norm"), _norm(g, c, w, k, f"{b}.attn_k_norm")
        if c.rope.rotary_dim > 0:
            q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        seen = local_attention(g, c, q, k, v) if attend is None else attend(h, q, k, v, i)
        a = attention_output(g, c, w, seen, i, add=h)
        x = _norm(g, c, w, a, f"{b}.attn_output_norm")
        if w.has(f"{b}.attn_norm_2.weight"):
            x = _norm(g, c, w, g.add(x, h), f"{b}.attn_norm_2")
        h = _norm(g, c, w, feed_forward(x, i), f"{b}.layer_output_norm")
    return h


BERT = Architecture(read_config, hidden_states)
NOMIC_BERT = Architecture(read_rotary_config, nomic_states)
NOMIC_BERT_MOE = Architecture(read_expert_config, nomic_expert_states)
BIG_BIRD = Architecture(read_block_config, block_states)
LONGFORMER = Architecture(read_window_config, window_states)
JINA_BERT_V2 = Architecture(read_alibi_config, jina_states)
JINA_BERT_V3 = Architecture(read_rotary_config, rotary_states)
