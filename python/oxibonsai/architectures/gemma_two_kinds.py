"""Parts that Gemma 3n and 4 share: layers of two kinds, shared keys and values, inputs of each layer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, gemma
from oxibonsai.architectures.decoder import VOCABULARY, RmsNormed
from oxibonsai.architectures.gemma2 import NORMS
from oxibonsai.architectures.gemma3 import cap
from oxibonsai.architectures.layer_sizes import KEYS, Largest, LayerSizes, Sizes, Varied
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.fields import (
    REAL,
    Checked,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry, LeftOut, weight
from oxibonsai.architectures.schema.tensors import norm as norm_entry
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.windows import FULL, LOCAL, LocalLayers
from oxibonsai.graph import Builder, RopeConfig, Value

SHARING = "num_kv_shared_layers"
OWN_KEYS = {"self_attn.k_proj": "attn_k"}
OWN_VALUES = {"self_attn.v_proj": "attn_v"}
QUERIES = {"self_attn.q_proj": "attn_q", "self_attn.o_proj": "attn_output"}
LAYER_INPUTS = {"per_layer_input_gate": "inp_gate", "per_layer_projection": "proj"}
# What larger models hold beside the language model.
_OTHERS = ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.")
_TEXTS_ALONE = (
    "the model's parts for images and sound are left out: what is made of it takes texts alone"
)


def _listed_kinds(config: ConfigJson, layers: int) -> tuple[bool, ...]:
    """Return whether each layer sees a window, which ``config.json`` must list."""
    kinds = config.get("layer_types")
    named = isinstance(kinds, list) and all(kind in (LOCAL, FULL) for kind in kinds)
    if not named or len(kinds) != layers:
        raise config.fail(
            f"layer_types does not say of {layers} layers which of {LOCAL} and {FULL} they are"
        )
    return tuple(kind == LOCAL for kind in kinds)


class SizesByKind(LayerSizes):
    """The sizes of all layers, whose heads are those of their kind."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Sizes:
        """Return the sizes that ``config.json`` says."""
        layers, heads = (
            config.count(config.get(name), name)
            for name in ("num_hidden_layers", "num_attention_heads")
        )
        stated = config.get("num_key_value_heads")
        groups = heads if stated is None else config.count(stated, "num_key_value_heads")
        full = self.full_groups(config) or groups
        for own in (groups, full):
            if heads % own != 0:
                raise config.fail(
                    f"{heads} attention heads are no multiple of {own} key-value heads"
                )
        kinds, widths = _listed_kinds(config, layers), self.widths(config, layers)
        return tuple(
            (heads, groups if local else full, width)
            for local, width in zip(kinds, widths, strict=True)
        )

    def write_config_json(self, value: Sizes, c: Any) -> dict[str, Any]:
        """Return no field: :class:`Largest` writes those of the sizes."""
        return {}

    @abstractmethod
    def full_groups(self, config: ConfigJson) -> int | None:
        """Return the key-value heads of layers without a window; None: those of all."""

    @abstractmethod
    def widths(self, config: ConfigJson, layers: int) -> list[int]:
        """Return the columns of the MLP of each layer."""


@dataclass(frozen=True)
class OfLayers(Largest):
    """The largest of one of the sizes, which a file lists where layers differ."""

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        listed = [sizes[self.place] for sizes in c.layer_sizes]
        differ = len(set(listed)) > 1
        return {KEYS[self.place]: (listed, "arr[i32]") if differ else (value, "u32")}


class _Kinds(LocalLayers):
    """Whether each layer sees a window: ``config.json`` and a file list them."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return the value that ``config.json`` says."""
        return _listed_kinds(config, known["num_hidden_layers"])


def _sharing_problem(known: Known, local: tuple[bool, ...]) -> str:
    """Return what is wrong with the layers that use keys and values of earlier ones of their kind."""
    layers, sharing = len(local), known[SHARING]
    own = local[: max(layers - sharing, 0)]
    if all(kind in own for kind in local):
        return ""
    return f"{sharing} of {layers} layers share keys and values that no other layer has"


def layers_with_window(period: int) -> Any:
    """Return the field of the layers that see a window; where a file does not say, a period of them."""
    return field(Checked(_Kinds(period), _sharing_problem))


def wrapper(model_type: str) -> Wrapper:
    """Return how a larger model of this type holds the language model."""
    return Wrapper((model_type,), others=_OTHERS, notes=(_TEXTS_ALONE,))


def _scale_problem(known: Known, scale: float) -> str:
    return "" if scale == 1.0 else f"attention.scale is {scale}; known is 1"


@dataclass(frozen=True, kw_only=True)
class TwoKinds(RmsNormed, Varied):
    """Fields of a model whose layers are of two kinds; a family restates what has no description here."""

    num_attention_heads: int = field(OfLayers(0, "num_attention_heads"))
    vocab_size: int = field(
        Stated(
            VOCABULARY, ("vocab_size",), "vocab_size", also_written=("vocab_size_per_layer_input",)
        )
    )
    tie_word_embeddings: bool = decoder.tied(True)
    attention_scale: float = field(
        Checked(
            Stated(REAL, (), "attention.scale", default=1.0, key_default=1.0, unsaid=True),
            _scale_problem,
        )
    )
    sliding_window: int = count("sliding_window", "attention.sliding_window")
    num_kv_shared_layers: int = count_or_zero(SHARING, "attention.shared_kv_layers", default=0)
    local_head_dim: int
    local_layers: tuple[bool, ...]
    hidden_size_per_layer_input: int = count_or_zero(
        "hidden_size_per_layer_input", "embedding_length_per_layer_input", default=0
    )
    rope: RopeConfig
    rope_local: RopeConfig
    final_logit_softcapping: float = cap("final_logit_softcapping")
    logit_scale: float = constant(1.0)
    activation: str = fixed(gemma.GELU, name="hidden_activation")
    attention_bias: bool = fixed(False, name="attention_bias")

    def shares_keys(self, layer: int) -> bool:
        """Return whether a layer uses keys and values of an earlier one."""
        return layer >= self.num_hidden_layers - self.num_kv_shared_layers

    def layer_of_keys(self, layer: int) -> int:
        """Return the last layer of the same kind that has keys and values of its own."""
        own = range(self.num_hidden_layers - self.num_kv_shared_layers)
        return max(i for i in own if self.local_layers[i] == self.local_layers[layer])


def outside(c: TwoKinds) -> Iterator[Entry]:
    """Yield what stands before the layers and behind them, and what makes the inputs of each layer."""
    yield from decoder.outside(c)
    if c.hidden_size_per_layer_input:
        yield weight("model.embed_tokens_per_layer", "per_layer_token_embd")
        yield weight("model.per_layer_model_projection", "per_layer_model_proj")
        yield norm_entry("model.per_layer_projection_norm", "per_layer_proj_norm")


def layer_tensors(c: TwoKinds, i: int, *, has_values: bool) -> Iterator[Entry]:
    """Yield the tensors of a layer: attention, whose keys and values may be another's, and MLP."""
    yield from decoder.norms(i, {**NORMS, "self_attn.q_norm": "attn_q_norm"})
    yield from decoder.matrices(i, {**QUERIES, **decoder.MLP})
    if c.shares_keys(i):
        yield LeftOut(f"model.layers.{i}.self_attn.[kv]_*")
    else:
        yield from decoder.norms(i, {"self_attn.k_norm": "attn_k_norm"})
        yield from decoder.matrices(i, {**OWN_KEYS, **(OWN_VALUES if has_values else {})})
    if c.hidden_size_per_layer_input:
        yield from decoder.matrices(i, LAYER_INPUTS)
        yield from decoder.norms(i, {"post_per_layer_input_norm": "post_norm"})


def attention(
    g: Builder, c: TwoKinds, w: Weights, layer: int, x: Value, *, keys_are_values: bool = False
) -> Value:
    """Return the layer's attention for its normed input x, maybe over another layer's keys and values."""
    own, b, eps, hidden = c.of_layer(layer), f"blk.{layer}", c.rms_norm_eps, c.hidden_size
    local = c.local_layers[layer]
    dim, rope = (c.local_head_dim, c.rope_local) if local else (c.head_dim, c.rope)
    window = c.sliding_window if local else 0
    q_weight = w.matrix(f"{b}.attn_q", own.num_attention_heads * dim, hidden)
    if c.shares_keys(layer):
        (q,) = g.linear(x, q_weight)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
        q = g.rope(q, rope, dim)
        other = c.layer_of_keys(layer)
        a = g.attend_to(q, layer=other, head_dim=dim, scale=1.0, window=window)
    else:
        weights = [q_weight, w.matrix(f"{b}.attn_k", own.num_key_value_heads * dim, hidden)]
        if not keys_are_values:
            weights.append(w.matrix(f"{b}.attn_v", own.num_key_value_heads * dim, hidden))
        q, k, *values = g.linear(x, *weights)
        v = g.head_norm(values[0] if values else k, np.ones(dim, np.float32), eps)
        q = g.head_norm(q, w.vector(f"{b}.attn_q_norm.weight", dim), eps)
        k = g.head_norm(k, w.vector(f"{b}.attn_k_norm.weight", dim), eps)
        q, k = g.rope(q, rope, dim), g.rope(k, rope, dim)
        a = g.attention(q, k, v, layer=layer, head_dim=dim, scale=1.0, window=window)
    return blocks.attention_output(g, c, w, a, layer)


def layer_inputs(g: Builder, c: TwoKinds, w: Weights, h: Value) -> Value:
    """Return each layer's input from the token and from its embedding: [n, layers * size]."""
    size, layers = c.hidden_size_per_layer_input, c.num_hidden_layers
    table = w.matrix("per_layer_token_embd", c.vocab_size, layers * size)
    tokens = g.scale(g.embed(table), math.sqrt(size))
    (own,) = g.linear(h, w.matrix("per_layer_model_proj", layers * size, c.hidden_size))
    own = g.scale(own, 1.0 / math.sqrt(c.hidden_size))
    own = g.head_norm(own, w.vector("per_layer_proj_norm.weight", size), c.rms_norm_eps)
    return g.scale(g.add(own, tokens), math.sqrt(0.5))


def layer_input(g: Builder, c: TwoKinds, w: Weights, layer: int, x: Value, inputs: Value) -> Value:
    """Return the value that joins the hidden states after a layer, for x."""
    size, b = c.hidden_size_per_layer_input, f"blk.{layer}"
    (gate,) = g.linear(x, w.matrix(f"{b}.inp_gate", size, c.hidden_size))
    x = g.geglu(gate, g.select_columns(inputs, layer * size, size))
    (x,) = g.linear(x, w.matrix(f"{b}.proj", c.hidden_size, size))
    return norm(g, c, w, x, f"{b}.post_norm")
