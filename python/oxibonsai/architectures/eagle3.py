"""EAGLE-3: a layer that proposes token after token from the model's hidden states (Li et al. 2025).

The layer is Llama's, but its attention reads two rows side by side: the embedding of a token, and a
state. For a token of the text the state is made of hidden states of the model before it, of a low, a
middle and a high layer; for a token of the proposal it is the layer's own output.

A drafter is no model of its own: it lacks the token table, mostly, and always the hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.drafting import (
    HIDDEN,
    LOGITS,
    STATES,
    DrafterConfig,
    are_layers,
    common_fields,
    target_layers,
)
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema import tensors as entries
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    GgufKeys,
    Known,
    count,
    field,
    fixed,
    flag,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.graph import Builder, RopeConfig, Value

NAME = "eagle3"
TARGET_LAYERS = "eagle_aux_hidden_state_layer_ids"  # in config.json
_TARGET_LAYERS_KEYS = ("target_layers", "extract_layers")
_LAYER = f"{decoder.LAYERS}.0."
_SPELLINGS = ("midlayer.", "layers.0.")  # of the layer, in folders


@dataclass(frozen=True, kw_only=True)
class Config(DrafterConfig):
    """The fields of a drafter's file.

    Attributes:
        target_hidden_size: Columns of the model's hidden states; None: the file does not say.
        norm_before_fc: Whether the model's hidden states are normalised before they are projected.
        norm_before_residual: Whether the layer adds its attention to the normalised state.
    """

    target_hidden_size: int | None
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
    fields = common_fields(keys, NAME, vocabulary, *_TARGET_LAYERS_KEYS)
    if fields["num_hidden_layers"] != 1:
        raise keys.unsupported(
            f"it has {fields['num_hidden_layers']} layers; known are drafters of one"
        )
    width = "target_hidden_size"
    return Config(
        **fields,
        rope=keys.rope(fields["head_dim"], interleaved=True),
        target_hidden_size=keys.integer(width) if keys.has(width) else None,
        norm_before_fc=keys.flag("norm_before_fc", False),
        norm_before_residual=keys.flag("norm_before_residual", False),
    )


@dataclass(frozen=True)
class TargetLayers:
    """The field of the model's layers whose inputs the drafter reads."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, ...]:
        """Return the layers that ``config.json`` says."""
        found = config.get(TARGET_LAYERS)
        if not are_layers(found):
            raise config.fail(f"{TARGET_LAYERS} is {found!r}, no list of the model's layers")
        return tuple(found)

    def write_config_json(self, value: tuple[int, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {TARGET_LAYERS: list(value)}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, ...]:
        """Return the layers that a file says."""
        return target_layers(keys, NAME, _TARGET_LAYERS_KEYS)

    def write_gguf(self, value: tuple[int, ...], c: Any) -> GgufKeys:
        """Return the key."""
        return {_TARGET_LAYERS_KEYS[0]: (list(value), "arr[i32]")}


@dataclass(frozen=True, kw_only=True)
class FolderConfig(decoder.Decoder):
    """The fields of a drafter's folder, with those that only the model's folder may say.

    A file states no ``draft_vocab_size``: it shows it by its tensors.
    """

    activation: str = fixed("silu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    window_of_folder: None = fixed(None, name="sliding_window")
    rope: RopeConfig = field(
        Rope(("default", "linear", "yarn", "llama3"), interleaved=True, counted=True, theta=10000.0)
    )
    draft_vocab_size: int = count("draft_vocab_size", default=lambda known: known["vocab_size"])
    target_layers: tuple[int, ...] = field(TargetLayers())
    target_hidden_size: int = count("target_hidden_size", "target_hidden_size")
    norm_before_residual: bool = flag(
        "norm_before_residual", "norm_before_residual", default=False, key_default=False
    )
    norm_before_fc: bool = flag(
        "norm_before_fc", "norm_before_fc", default=False, key_default=False
    )


def tensors(c: FolderConfig) -> Iterator[entries.Entry]:
    """Yield all tensors of a drafter but ``d2t``, which is no parameter.

    A file without an output matrix uses the model's, which neither a smaller vocabulary nor a matrix tied
    to the drafter's own table allows.
    """
    models_head = c.draft_vocab_size == c.vocab_size and not c.tie_word_embeddings
    yield entries.weight("model.embed_tokens", "token_embd", optional=True)
    yield from decoder.rope_factors(c)
    if c.norm_before_fc:
        yield entries.norm("input_norm", "enc.output_norm")
    yield entries.weight("fc", "fc")
    yield from decoder.norms(0, {**decoder.NORMS, "hidden_norm": "attn_norm_2"})
    yield from decoder.matrices(0, decoder.ATTENTION, decoder.pairs(c))
    yield from decoder.matrices(0, decoder.MLP)
    yield entries.norm("model.norm", "output_norm")
    yield entries.weight("lm_head", "output", optional=models_head)


def spelled(parameter: str) -> str:
    """Return the family's name of a parameter, of which folders have the layer's in several spellings."""
    bare = parameter.removeprefix("model.")
    for prefix in _SPELLINGS:
        if bare.startswith(prefix):
            return _LAYER + bare.removeprefix(prefix)
    outside = ("embed_tokens.", "norm.")
    return f"model.{bare}" if bare.startswith(outside) else bare


def read_inputs(
    g: Builder, c: Config | FolderConfig, w: Weights, width: int | None
) -> tuple[Value, Value]:
    """Return the normalised rows of tokens, and the states.

    Args:
        g: Of the pass.
        c: The drafter's config.
        w: Its tensors.
        width: As of :func:`drafting_pass`.
    """
    hidden = c.hidden_size
    state = g.input(STATES, hidden if width is None else len(c.target_layers) * width)
    if width is not None:
        if c.norm_before_fc:
            state = norm(g, c, w, state, "enc.output_norm")
        (state,) = g.linear(state, w.matrix("fc", hidden, state.cols))
    return norm(g, c, w, g.embed(w.embedding(c)), "blk.0.attn_norm"), state


def layer(
    g: Builder, c: Config | FolderConfig, w: Weights, i: int, rows: tuple[Value, Value]
) -> Value:
    """Return the hidden states after the layer, of what :func:`read_inputs` returns."""
    (token, state), hidden, b = rows, c.hidden_size, f"blk.{i}"
    normed = norm(g, c, w, state, f"{b}.attn_norm_2")
    kv = c.num_key_value_heads * c.head_dim
    q, k, v = g.linear(
        g.join_heads(token, normed, 1),
        w.matrix(f"{b}.attn_q", c.num_attention_heads * c.head_dim, 2 * hidden),
        w.matrix(f"{b}.attn_k", kv, 2 * hidden),
        w.matrix(f"{b}.attn_v", kv, 2 * hidden),
    )
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    a = g.attention(q, k, v, layer=i, head_dim=c.head_dim, scale=c.attention_scale)
    h = g.add(normed if c.norm_before_residual else state, blocks.attention_output(g, c, w, a, i))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    return g.add(h, blocks.gated_mlp(g, c, w, x, i, g.swiglu))


def drafting_pass(g: Builder, c: Config, w: Weights, width: int | None) -> None:
    """Describe the layer, from tokens and states to ``hidden`` and ``logits`` of each wanted row.

    Args:
        g: Of the pass.
        c: The drafter's config.
        w: Its tensors; those of the table and of the output matrix may be the model's.
        width: Columns of the model's hidden states: the input ``states`` is
            [tokens, target_layers * width]. None: it is the drafter's own, [tokens, hidden].
    """
    h = g.select_outputs(layer(g, c, w, 0, read_inputs(g, c, w, width)))
    g.output(HIDDEN, h)
    x = norm(g, c, w, h, "output_norm")
    if c.draft_vocab_size == c.vocab_size:
        g.output(LOGITS, blocks.logits(g, c, w, x))
    else:
        (logits,) = g.linear(x, w.matrix("output", c.draft_vocab_size, c.hidden_size))
        g.output(LOGITS, logits)


def _read_text(g: Builder, c: FolderConfig, w: Weights) -> tuple[Value, Value]:
    return read_inputs(g, c, w, c.target_hidden_size)


FAMILY = Family(
    NAME, (), "", "EAGLE-3", FolderConfig, tensors, layer, _read_text, spelled=spelled
)  # fmt: skip
