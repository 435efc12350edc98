"""Parts that mixtures of experts share: their fields, the names of their tensors, the usual layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures.decoder import LAYERS, MLP, Constants, LayerNormed, RmsNormed, matrices
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.fields import (
    COUNT,
    COUNT_OR_ZERO,
    FACTOR,
    Checked,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import Stack
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Tensor, vector
from oxibonsai.graph import Builder, RopeConfig, Value

# Values of expert_gating_func.
SCORINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_of_chosen"}


def intermediate_size(known: Known) -> int:
    """Return the width that dense layers have, or would have."""
    return int(known["intermediate_size"])


def used_problem(known: Known, used: int) -> str:
    """Return what is wrong with the number of a token's experts; empty: nothing is."""
    total = known["num_experts"]
    return "" if used <= total else f"{used} experts of a token are more than {total} experts"


def used_experts(name: str, **more: Any) -> Checked:
    """Describe the number of a token's experts, by its name in ``config.json``."""
    return Checked(Stated(COUNT, (name,), "expert_used_count", **more), used_problem)


def dense_width() -> Any:
    """Return the field of experts that are as wide as a dense layer would be."""
    key = "expert_feed_forward_length"
    return count((), key, default=intermediate_size, key_default=intermediate_size, unsaid=True)


@dataclass(frozen=True)
class Scoring:
    """The function of a router's scores, which a file states as a number.

    Attributes:
        value: Of all folders, and of files that do not say it.
        name: Of a field of ``config.json`` that may say it; empty: there is none.
        also: Other words of that field that mean the same.
    """

    value: str
    name: str = ""
    also: tuple[str, ...] = ()

    def read_config_json(self, config: ConfigJson, known: Known) -> str:
        """Return the value; UnsupportedError where ``config.json`` says another one."""
        stated = config.get(self.name) if self.name else None
        if stated not in (None, self.value, *self.also):
            raise config.unsupported(f"{self.name} is {stated!r}; known is {self.value!r}")
        return self.value

    def write_config_json(self, value: str, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> str:
        """Return the value that a file says."""
        number = keys.get("expert_gating_func")
        if number is None:
            return self.value
        if type(number) is not int or number not in SCORINGS:
            raise keys.unsupported(
                f"expert_gating_func is {number!r}; known are 1 (softmax), 2 (sigmoid) and 3 (softmax of "
                "the chosen)"
            )
        return SCORINGS[number]

    def write_gguf(self, value: str, c: Any) -> GgufKeys:
        """Return the key."""
        number = next(number for number, scoring in SCORINGS.items() if scoring == value)
        return {"expert_gating_func": (number, "u32")}


@dataclass(frozen=True)
class OfExperts(Stated):
    """A count that says nothing of a model without experts, whose file has no key for it.

    Attributes:
        needed: Whether a file with experts must have it.
    """

    needed: bool = True

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says; 0 without experts."""
        return super().read_config_json(config, known) if known["num_experts"] else 0

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says; 0 without experts."""
        if known["num_experts"] == 0:
            keys.get(self.key)
            return 0
        return keys.integer(self.key) if self.needed else keys.count(self.key)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key of a model with experts."""
        return {} if c.experts is None else {self.key: (value, "u32")}


@dataclass(frozen=True)
class SharedExperts:
    """The width of all experts together that every token goes through; folders count them.

    Attributes:
        name: Of their number in ``config.json``.
        width: The field that says how wide one is.
        told: Whether a file states the width of all, too.
        default: How many there are where a file says nothing: 0 or 1.
    """

    name: str
    width: str = "moe_intermediate_size"
    told: bool = True
    default: int = 0

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        stated = config.fields.get(self.name) or 0
        number: int = COUNT_OR_ZERO.of_config_json(config, stated, self.name)
        return number * int(known[self.width])

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value // getattr(c, self.width)}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says; FormatError where its numbers do not fit together."""
        one = int(known[self.width])
        if not self.told:
            return keys.count("expert_shared_count") * one
        width = keys.count("expert_shared_feed_forward_length", self.default and one)
        if keys.has("expert_shared_count"):
            number = keys.count("expert_shared_count")
            if (number == 0) != (width == 0) or (number > 0 and width % number != 0):
                raise keys.fail(
                    f"expert_shared_count is {number}, but the shared experts are {width} wide together"
                )
        return width

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys."""
        found: GgufKeys = {"expert_shared_count": (value // getattr(c, self.width), "u32")}
        if self.told and value:
            found["expert_shared_feed_forward_length"] = (value, "u32")
        return found


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Fields of the experts that layers have; a family restates what differs."""

    num_experts: int = count(("num_experts", "num_local_experts"), "expert_count")
    num_experts_per_tok: int = field(used_experts("num_experts_per_tok"))
    moe_intermediate_size: int = count("moe_intermediate_size", "expert_feed_forward_length")
    shared_intermediate_size: int = constant(0)  # of all shared experts together
    first_dense_layers: int = constant(0)
    layer_step: int = constant(1)
    scoring: str = constant("softmax")
    norm_topk_prob: bool = constant(True)
    routed_scaling_factor: float = constant(1.0)
    n_group: int = constant(1)
    topk_group: int = constant(1)
    best_of_group: int = constant(1)

    @property
    def experts(self) -> ExpertsConfig:
        """Return the sizes and the routing of the experts."""
        return ExpertsConfig(
            self.num_experts,
            self.num_experts_per_tok,
            self.moe_intermediate_size,
            shared_intermediate_size=self.shared_intermediate_size,
            first_dense_layers=self.first_dense_layers,
            layer_step=self.layer_step,
            scoring=self.scoring,
            normalize=self.norm_topk_prob,
            scale=self.routed_scaling_factor,
            groups=self.n_group,
            kept_groups=self.topk_group,
            best_of_group=self.best_of_group,
        )


def group_problem(known: Known, kept: int) -> str:
    """Return what is wrong with the number of groups that experts are chosen from; empty: nothing is."""
    total, used, groups = known["num_experts"], known["num_experts_per_tok"], known["n_group"]
    if total % groups == 0 and kept <= groups and used <= total // groups * kept:
        return ""
    return f"{used} of {total} experts cannot be chosen from {kept} of {groups} groups"


def _groups(known: Known) -> int:
    return int(known["n_group"])


@dataclass(frozen=True, kw_only=True)
class GroupedExperts(Experts):
    """Fields of experts that may form groups, and whose weights are scaled."""

    routed_scaling_factor: float = real(
        "routed_scaling_factor", "expert_weights_scale", FACTOR, default=1.0, key_default=1.0
    )
    n_group: int = count("n_group", "expert_group_count", default=1, key_default=1)
    topk_group: int = field(
        Checked(
            Stated(
                COUNT, ("topk_group",), "expert_group_used_count", default=_groups,
                key_default=_groups,
            ),
            group_problem,
        )
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Mixture(Constants, Experts, RmsNormed):
    """Fields of a decoder with experts, whose norms are RMSNorms."""

    activation: str = fixed("silu", name="hidden_act")
    rope: RopeConfig


@dataclass(frozen=True, kw_only=True)
class RoutedMixture(GroupedExperts, Mixture):
    """Fields of a decoder whose first layers are dense, and whose experts may form groups."""

    first_dense_layers: int = count_or_zero(
        "first_k_dense_replace", "leading_dense_block_count", default=0
    )
    scoring: str = field(Scoring("sigmoid"))
    best_of_group: int = constant(2)


@dataclass(frozen=True, kw_only=True)
class LayerNormMixture(Constants, Experts, LayerNormed):
    """Fields of a decoder with experts, whose norms are LayerNorms."""

    rope: RopeConfig


PROJECTIONS = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NUMBERED = {"w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down"}


def router(i: int, parameter: str, *, layers: str = LAYERS) -> Iterator[Tensor]:
    """Yield the weights of a layer's router, which stay float32: they decide which experts run."""
    yield vector(f"{layers}.{i}.{parameter}.weight", f"blk.{i}.ffn_gate_inp.weight")


def selection_bias(i: int, parameter: str, *, optional: bool = True) -> Iterator[Tensor]:
    """Yield what joins the scores where experts are chosen, by its whole name within a layer."""
    yield vector(f"{LAYERS}.{i}.{parameter}", f"blk.{i}.exp_probs_b.bias", optional=optional)


def each_expert(
    c: Experts,
    i: int,
    module: str = "mlp.experts",
    parts: Mapping[str, str] = PROJECTIONS,
    *,
    layers: str = LAYERS,
) -> Iterator[Tensor]:
    """Yield the matrices of a layer's experts, of which a folder has each expert's by itself."""
    for part, tensor in parts.items():
        stem = f"{layers}.{i}.{module}"
        names = tuple(f"{stem}.{expert}.{part}.weight" for expert in range(c.num_experts))
        yield Tensor(names, (f"blk.{i}.{tensor}_exps.weight",), (Stack(c.num_experts),))


def shared_names(module: str) -> dict[str, str]:
    """Return the names of the matrices of the experts that all tokens share, by their module's."""
    return {f"{module}.{part}": f"{tensor}_shexp" for part, tensor in PROJECTIONS.items()}


def feed_forward(
    c: Mixture, i: int, *, selection_bias_name: str = "mlp.gate.e_score_correction_bias"
) -> Iterator[Tensor]:
    """Yield the tensors of :func:`feed_forward_pass` under DeepSeek's names."""
    if i < c.first_dense_layers:
        yield from matrices(i, MLP)
        return
    yield from router(i, "mlp.gate")
    yield from selection_bias(i, selection_bias_name)
    yield from each_expert(c, i)
    if c.shared_intermediate_size:
        yield from matrices(i, shared_names("mlp.shared_experts"))


def add_experts(
    g: Builder, c: Mixture | LayerNormMixture, w: Weights, x: Value, i: int, h: Value
) -> Value:
    """Return h and what the experts of layer i give of x, by the scores alone."""
    routing = experts.route(g, c, w, x, i)
    return g.add(h, experts.gated_experts(g, c, w, x, i, routing, g.swiglu))


def feed_forward_pass(
    g: Builder, c: Mixture, w: Weights, x: Value, i: int, *, add: Value | None = None
) -> Value:
    """Return what layer i makes of x, plus ``add``: a dense part, or experts beside those that all share.

    Experts are chosen by their scores and a bias, where there is one; their weights are of the scores.
    """
    if i < c.first_dense_layers:
        return blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=add)
    routing = experts.route(g, c, w, x, i, selection_bias=experts.selection_bias(c, w, i))
    y = experts.gated_experts(g, c, w, x, i, routing, g.swiglu)
    if add is not None:
        y = g.add(add, y)
    return experts.shared_expert(g, c, w, x, i, add=y) if c.shared_intermediate_size else y


def add_attention(g: Builder, c: Mixture | LayerNormMixture, w: Weights, i: int, h: Value) -> Value:
    """Return h and what attention of layer i gives, whose queries and keys are rotated alone."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    a = blocks.rotated_attention(g, c, w, x, i, window=c.sliding_window)
    return blocks.attention_output(g, c, w, a, i, add=h)


def layer(g: Builder, c: Mixture | LayerNormMixture, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i: attention, then experts."""
    h = add_attention(g, c, w, i, h)
    return add_experts(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, h)
