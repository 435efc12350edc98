"""Gemma 4: heads of two sizes, layers that share keys and values, embeddings for each layer, experts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, gemma
from oxibonsai.architectures.decoder import HeadDim
from oxibonsai.architectures.gemma_two_kinds import (
    SHARING,
    OfLayers,
    SizesByKind,
    TwoKinds,
    attention,
    layer_input,
    layer_inputs,
    layer_tensors,
    layers_with_window,
    outside,
    wrapper,
)
from oxibonsai.architectures.layer_sizes import Sizes
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import OfExperts, used_problem
from oxibonsai.architectures.rotary import PARTIAL, read_rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    COUNT_OR_ZERO,
    Checked,
    Derived,
    GgufKeys,
    Known,
    Stated,
    field,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, vector
from oxibonsai.architectures.windows import FULL, LOCAL
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import Builder, RopeConfig, Value

DOUBLE_WIDE = "use_double_wide_mlp"
STILL = 1e30  # divisor of the frequencies of pairs that do not turn
EXPERT_NORMS = {
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
}
ROUTER = {
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
}
# Hidden states, and what joins them after each layer; None: nothing does.
Carried = tuple[Value, Value | None]


def _of_full_layers(config: ConfigJson, name: str, stated: str) -> int | None:
    """Return a size that only layers without a window have, as versions of transformers write it."""
    if (value := config.get(stated)) is not None:
        return config.count(value, stated)
    layers = config.get("per_layer_config") or {}
    held = layers.values() if isinstance(layers, dict) else ()
    found = [layer[name] for layer in held if isinstance(layer, dict) and name in layer]
    if any(type(n) is not int or n <= 0 or n != found[0] for n in found):
        raise config.fail(f"per_layer_config has no one {name}")
    return found[0] if found else None


class DoubledSizes(SizesByKind):
    """The sizes of all layers, of which those that share keys and values may have MLPs twice as wide."""

    def full_groups(self, config: ConfigJson) -> int | None:
        """Return the key-value heads of layers without a window; None: those of all."""
        return _of_full_layers(config, "num_key_value_heads", "num_global_key_value_heads")

    def widths(self, config: ConfigJson, layers: int) -> list[int]:
        """Return the columns of the MLP of each layer."""
        width = config.count(config.get("intermediate_size"), "intermediate_size")
        if config.get(DOUBLE_WIDE) is not True:
            return [width] * layers
        first = layers - COUNT_OR_ZERO.of_config_json(config, config.get(SHARING) or 0, SHARING)
        return [width if i < first else 2 * width for i in range(layers)]


class MlpWidth(OfLayers):
    """The columns of the widest MLP."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``: the columns of the first, and whether others have more."""
        widths = [width for _, _, width in c.layer_sizes]
        return {"intermediate_size": widths[0], DOUBLE_WIDE: len(set(widths)) > 1}


class KeyValueHeads(OfLayers):
    """The most key-value heads."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``.

        Raises:
            UnsupportedError: Heads differ and values are apart, which transformers does not have.
        """
        groups = list(zip(c.local_layers, (groups for _, groups, _ in c.layer_sizes), strict=True))
        local, full = ({n for is_local, n in groups if is_local is kind} for kind in (True, False))
        heads = min(local or full)
        found = {"num_key_value_heads": heads}
        if full and full != {heads}:
            if not c.attention_k_eq_v:
                raise UnsupportedError(
                    "key-value heads differ between kinds of layers, for which transformers has no "
                    "place; save it as gguf"
                )
            found["num_global_key_value_heads"] = min(full)
        return found


class FullHeadDim(HeadDim):
    """The columns of a head in layers without a window."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        width = _of_full_layers(config, "head_dim", "global_head_dim")
        return config.count(config.get("head_dim"), "head_dim") if width is None else width

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"global_head_dim": value}


@dataclass(frozen=True)
class LocalHeadDim:
    """The columns of a head in layers with a window."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("head_dim"), "head_dim")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"head_dim": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says of keys and of values."""
        width = keys.integer("attention.key_length_swa")
        if keys.integer("attention.value_length_swa", width) != width:
            raise keys.unsupported("keys and values of different lengths are not supported")
        return width

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys of both lengths."""
        lengths = ("attention.key_length_swa", "attention.value_length_swa")
        return dict.fromkeys(lengths, (value, "u32"))


@dataclass(frozen=True)
class KeysAreValues:
    """Whether layers without a window use their keys as values, which a file shows by its tensors."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says."""
        return config.get("attention_k_eq_v") is True

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"attention_k_eq_v": value}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return the value that the file's tensors tell."""
        local = known["local_layers"][: known["num_hidden_layers"] - known[SHARING]]
        full = [i for i, windowed in enumerate(local) if not windowed]
        return bool(full) and not any(f"blk.{i}.attn_v.weight" in keys.tensor_names for i in full)

    def write_gguf(self, value: bool, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class TwoRopes:
    """Base of the rotary embeddings of one kind of layers.

    Attributes:
        kind: Of the layers.
    """

    kind: str

    def object_of(self, config: ConfigJson) -> dict[str, Any]:
        """Return what ``config.json`` says of the kind."""
        rope = config.get("rope_parameters")
        if not isinstance(rope, dict) or not {LOCAL, FULL} <= rope.keys():
            raise config.fail("rope_parameters lack a kind of layers")
        found = rope[self.kind]
        if not isinstance(found, dict):
            raise config.fail(f"the rotary embedding of {self.kind} is {found!r}, no object")
        return found


class FullRope(TwoRopes):
    """The rotary embedding of layers without a window, which turns a part of their pairs."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = dict(self.object_of(config))
        if rope.pop("rope_type", None) != "proportional":
            raise config.unsupported(f"rope_type of {FULL} is not proportional")
        theta = read_rope(config, ("default",), rope, also=(PARTIAL,))[1]["rope_theta"]
        share, dims = rope.get(PARTIAL, 1.0), known["head_dim"]
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise config.fail(f"{PARTIAL} is {share!r}, no share")
        turning = int(dims * share / 2)
        factors = [1.0] * turning + [STILL] * (dims // 2 - turning)
        return RopeConfig(
            dims, theta, frequency_factors=tuple(map(float, np.array(factors, np.float32)))
        )

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the object of ``config.json``."""
        found: dict[str, Any] = {"rope_type": "proportional", "rope_theta": value.theta}
        if value.frequency_factors:
            found[PARTIAL] = 2 * value.frequency_factors.count(1.0) / value.rotary_dim
        return {"rope_parameters": {FULL: found}}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys and its table of factors describe."""
        if not all(known["local_layers"]) and "rope_freqs.weight" not in keys.tensor_names:
            # Without it all pairs of a head would be rotated, of which such a layer rotates some.
            raise keys.fail(
                "layers without a window need the tensor rope_freqs.weight, which is missing"
            )
        return keys.rope(known["head_dim"])

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys."""
        return {
            "rope.dimension_count": (value.rotary_dim, "u32"),
            "rope.freq_base": (value.theta, "f32"),
        }


class LocalRope(TwoRopes):
    """The rotary embedding of layers with a window."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = read_rope(config, ("default",), self.object_of(config))[1]
        return RopeConfig(known["local_head_dim"], rope["rope_theta"])

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the object of ``config.json``."""
        return {"rope_parameters": {LOCAL: {"rope_type": "default", "rope_theta": value.theta}}}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys describe."""
        width = known["local_head_dim"]
        rotary = keys.integer("rope.dimension_count_swa", width)
        if rotary % 2 != 0 or rotary > width:
            raise keys.fail(f"{rotary} rotated dims of a head of {width}")
        return RopeConfig(
            rotary,
            keys.theta("rope.freq_base_swa", 10000.0),
            attention_factor=keys.positive("rope.scaling.attn_factor", 1.0),
        )

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys."""
        return {
            "rope.dimension_count_swa": (value.rotary_dim, "u32"),
            "rope.freq_base_swa": (value.theta, "f32"),
        }


class OfExpertsAlone(OfExperts):
    """A count that says nothing of a model without experts."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json`` of a model with experts."""
        return {} if c.experts is None else super().write_config_json(value, c)


class ExpertCount(Stated):
    """The number of experts; 0: there are none."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        if config.get("enable_moe_block") is not True:
            return 0
        return config.count(config.get("num_experts"), "num_experts")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        found = {"num_experts": value} if value else {}
        return {"enable_moe_block": value > 0, **found}


class BothSides(Derived):
    """The check that no token sees those behind it, but for images' in models that see."""

    def read_config_json(self, config: ConfigJson, known: Known) -> None:
        """Return nothing; UnsupportedError where ``config.json`` says something else."""
        stated = config.get("use_bidirectional_attention")
        if stated not in (None, "vision"):
            raise config.unsupported(
                f"use_bidirectional_attention is {stated!r}; known are None, 'vision'"
            )

    def write_config_json(self, value: None, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"use_bidirectional_attention": None}

    def read_gguf(self, keys: Keys, known: Known) -> None:
        """Return nothing."""


@dataclass(frozen=True, kw_only=True)
class Config(TwoKinds):
    """The fields of a model."""

    layer_sizes: Sizes = field(DoubledSizes())
    intermediate_size: int = field(MlpWidth(2, "intermediate_size"))
    num_key_value_heads: int = field(KeyValueHeads(1, "num_key_value_heads"))
    head_dim: int = field(FullHeadDim(shared=False))
    local_head_dim: int = field(LocalHeadDim())
    local_layers: tuple[bool, ...] = layers_with_window(1)
    rope: RopeConfig = field(FullRope(FULL))
    rope_local: RopeConfig = field(LocalRope(LOCAL))
    attention_k_eq_v: bool = field(KeysAreValues())
    num_experts: int = field(
        ExpertCount(COUNT_OR_ZERO, ("num_experts",), "expert_count", key_default=0, unsaid=True)
    )
    num_experts_per_tok: int = field(
        Checked(OfExpertsAlone(COUNT, ("top_k_experts",), "expert_used_count"), used_problem)
    )
    moe_intermediate_size: int = field(
        OfExpertsAlone(COUNT, ("moe_intermediate_size",), "expert_feed_forward_length")
    )
    sees_both_sides: None = field(BothSides())

    @property
    def experts(self) -> ExpertsConfig | None:
        """Return the sizes of the experts; None: there are none."""
        if self.num_experts == 0:
            return None
        sizes = self.num_experts, self.num_experts_per_tok, self.moe_intermediate_size
        return ExpertsConfig(*sizes)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from layer_tensors(c, i, has_values=c.local_layers[i] or not c.attention_k_eq_v)
        yield vector(
            f"model.layers.{i}.layer_scalar", f"blk.{i}.layer_output_scale.weight", optional=True
        )
        if c.experts is not None:
            yield from expert_tensors(i)


def expert_tensors(i: int) -> Iterator[Entry]:
    """Yield the experts of a layer, stacked with gate above up, and their router."""
    yield from decoder.norms(i, EXPERT_NORMS)
    for parameter, tensor in ROUTER.items():
        yield vector(f"model.layers.{i}.{parameter}", f"blk.{i}.{tensor}")
    for part in ("gate_up", "down"):
        parameter = f"model.layers.{i}.experts.{part}_proj"
        yield Tensor((parameter,), (f"blk.{i}.ffn_{part}_exps.weight",))


def embed(g: Builder, c: TwoKinds, w: Weights) -> Carried:
    """Return the scaled rows of the token table, and each layer's input, if there is one."""
    h = gemma.embed(g, c, w)
    return h, layer_inputs(g, c, w, h) if c.hidden_size_per_layer_input else None


def layer(g: Builder, c: Config, w: Weights, i: int, carried: Carried) -> Carried:
    """Return the hidden states after layer i, and the inputs of all layers."""
    h, inputs = carried
    b = f"blk.{i}"
    x, alone = norm(g, c, w, h, f"{b}.attn_norm"), not w.has(f"{b}.attn_v.weight")
    a = attention(g, c, w, i, x, keys_are_values=alone)
    h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
    x = norm(g, c, w, h, f"{b}.ffn_norm")
    x = blocks.gated_mlp(g, c.of_layer(i), w, x, i, g.geglu)
    if c.experts is not None:
        x = g.add(norm(g, c, w, x, f"{b}.post_ffw_norm_1"), _mixture(g, c, w, i, h))
    h = g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))
    if inputs is not None:
        h = g.add(h, layer_input(g, c, w, i, h, inputs))
    if w.has(f"{b}.layer_output_scale.weight"):
        h = g.scale(h, float(w.vector(f"{b}.layer_output_scale.weight", 1)[0]))
    return h, inputs


def _mixture(g: Builder, c: Config, w: Weights, layer: int, h: Value) -> Value:
    """Return the experts' output for the hidden states, normalised; their router has a norm of its own."""
    e, b, eps = experts.experts_of(c), f"blk.{layer}", c.rms_norm_eps
    scale = w.vector(f"{b}.ffn_gate_inp.scale", c.hidden_size) / np.float32(
        math.sqrt(c.hidden_size)
    )
    (scores,) = g.linear(
        g.rms_norm(h, scale, eps), w.matrix(f"{b}.ffn_gate_inp", e.num_experts, c.hidden_size)
    )
    routing = g.route(
        scores,
        e.num_experts_per_tok,
        normalize=True,
        expert_scale=w.vector(f"{b}.ffn_down_exps.scale", e.num_experts),
    )
    x = norm(g, c, w, h, f"{b}.pre_ffw_norm_2")
    x = experts.gated_experts(g, c, w, x, layer, routing, g.geglu)
    return norm(g, c, w, x, f"{b}.post_ffw_norm_2")


FAMILY = Family(
    "gemma4", ("gemma4_text",), "Gemma4", "Gemma 4", Config, tensors, layer, embed,
    wrapper=wrapper("gemma4"),
    after_layers=lambda g, c, w, carried: carried[0],
)  # fmt: skip
