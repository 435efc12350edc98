"""Mixtures of experts: their keys, and the steps that pages put together."""

from __future__ import annotations

from collections.abc import Callable

from oxibonsai.graph import Builder, Routing, Value, Vector
from oxibonsai.models.config import ExpertsConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Values of expert_gating_func.
_SCORINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_of_chosen"}


def read_experts(
    keys: Keys, *, scoring: str = "softmax", normalize: bool = True, ff: int | None = None
) -> ExpertsConfig:
    """How many experts there are, how many a token has, and their width.

    Args:
        keys: Of the file.
        scoring: What the scores of a router become.
        normalize: Whether a token's weights are divided by their sum.
        ff: The width of an expert where the file does not say it; None: it must.
    """
    count, used = keys.integer("expert_count"), keys.integer("expert_used_count")
    if used > count:
        raise keys.fail(f"{used} experts of a token are more than {count} experts")
    return ExpertsConfig(
        num_experts=count,
        num_experts_per_tok=used,
        intermediate_size=keys.integer("expert_feed_forward_length", ff),
        scoring=scoring,
        normalize=normalize,
    )


def read_scoring(keys: Keys, default: str) -> str:
    """``expert_gating_func``."""
    value = keys.get("expert_gating_func")
    if value is None:
        return default
    if not isinstance(value, int) or value not in _SCORINGS:
        raise keys.unsupported(
            f"{keys.architecture}.expert_gating_func is {value!r}; known are 1 (softmax), 2 (sigmoid) "
            "and 3 (softmax of the chosen)"
        )
    return _SCORINGS[value]


def read_groups(keys: Keys, experts: int, used: int) -> tuple[int, int]:
    """``expert_group_count`` and ``expert_group_used_count``; 1 and 1: experts form no groups."""
    groups = keys.integer("expert_group_count", 1)
    kept = keys.integer("expert_group_used_count", groups)
    if experts % groups != 0 or kept > groups or used > experts // groups * kept:
        raise keys.fail(
            f"{used} of {experts} experts cannot be chosen from {kept} of {groups} groups"
        )
    return groups, kept


def read_shared_width(keys: Keys, default: int = 0) -> int:
    """``expert_shared_feed_forward_length``: of all shared experts together; 0: there are none.

    ``expert_shared_count``, where the file has it, must agree: the experts have equal widths.
    """
    width = keys.count("expert_shared_feed_forward_length", default)
    if keys.has("expert_shared_count"):
        count = keys.count("expert_shared_count")
        if (count == 0) != (width == 0) or (count > 0 and width % count != 0):
            raise keys.fail(
                f"{keys.architecture}.expert_shared_count is {count}, but the shared experts are {width} "
                "wide together"
            )
    return width


def route(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    x: Value,
    layer: int,
    *,
    selection_bias: Vector | None = None,
) -> Routing:
    """Return the experts of each row of x, by the scores of the layer's router."""
    e = experts_of(c)
    name = f"blk.{layer}.ffn_gate_inp"
    router = w.matrix(name, e.num_experts, c.hidden_size)
    (scores,) = g.linear(x, router, bias=[w.bias(name, e.num_experts)])
    return g.route(
        scores,
        e.num_experts_per_tok,
        scoring=e.scoring,
        selection_bias=selection_bias,
        normalize=e.normalize,
        scale=e.scale,
        groups=e.groups,
        kept_groups=e.kept_groups,
        best_of_group=e.best_of_group,
    )


def selection_bias(c: ModelConfig, w: Weights, layer: int) -> Vector | None:
    """Return the bias that scores get where experts are chosen, but not their weights; None without one."""
    name, count = f"blk.{layer}.exp_probs_b", experts_of(c).num_experts
    if w.has(f"{name}.bias") and w.shape(f"{name}.bias") == (1, count):
        return w.floats(f"{name}.bias", 1, count).ravel()
    return w.bias(name, count)


def gated_experts(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    x: Value,
    layer: int,
    routing: Routing,
    unit: Callable[[Value, Value], Value],
    *,
    weigh_inputs: bool = False,
) -> Value:
    """Return the sum of what a token's experts, down(unit(gate(x), up(x))), give: [tokens, hidden].

    Args:
        g: Of the pass.
        c: With experts.
        w: The model's tensors; biases join in where the file has them. Gate and up may be one, gate
            first.
        x: [tokens, hidden].
        layer: Whose experts.
        routing: Which of them.
        unit: What makes one of gate and up.
        weigh_inputs: An expert's weight multiplies what it reads, instead of what it gives.
    """
    ff = experts_of(c).intermediate_size
    rows = g.dispatch(x, routing, weighted=weigh_inputs)
    if w.has(f"blk.{layer}.ffn_gate_up_exps.weight"):
        both = _each(g, c, w, rows, layer, routing, "gate_up", 2 * ff)
        gate, up = g.select_columns(both, 0, ff), g.select_columns(both, ff, ff)
    else:
        gate = _each(g, c, w, rows, layer, routing, "gate", ff)
        up = _each(g, c, w, rows, layer, routing, "up", ff)
    down = _each(g, c, w, unit(gate, up), layer, routing, "down", x.cols)
    return g.combine(down, routing, weighted=not weigh_inputs)


def plain_experts(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    x: Value,
    layer: int,
    routing: Routing,
    activation: Callable[[Value], Value],
) -> Value:
    """Return the output of experts without gates, down(activation(up(x))): as many columns as x."""
    rows = g.dispatch(x, routing)
    up = _each(g, c, w, rows, layer, routing, "up", experts_of(c).intermediate_size)
    return g.combine(_each(g, c, w, activation(up), layer, routing, "down", x.cols), routing)


def _each(
    g: Builder,
    c: ModelConfig,
    w: Weights,
    rows: Value,
    layer: int,
    routing: Routing,
    part: str,
    out: int,
) -> Value:
    """Each row times the matrix ``part`` of its expert: [routed, out]."""
    name, count = f"blk.{layer}.ffn_{part}_exps", experts_of(c).num_experts
    weight = w.experts(name, count, out, rows.cols)
    return g.expert_linear(rows, routing, weight, w.expert_bias(name, count, out))


def shared_expert(
    g: Builder, c: ModelConfig, w: Weights, x: Value, layer: int, *, add: Value | None = None
) -> Value:
    """Return the SwiGLU that every token goes through beside its experts, plus ``add``."""
    ff, hidden, b = experts_of(c).shared_intermediate_size, c.hidden_size, f"blk.{layer}.ffn"
    gate, up = g.linear(
        x,
        w.matrix(f"{b}_gate_shexp", ff, hidden),
        w.matrix(f"{b}_up_shexp", ff, hidden),
    )
    (out,) = g.linear(g.swiglu(gate, up), w.matrix(f"{b}_down_shexp", hidden, ff), add=add)
    return out


def experts_of(c: ModelConfig) -> ExpertsConfig:
    """Return the experts' configuration; the model must have one."""
    assert c.experts is not None
    return c.experts
