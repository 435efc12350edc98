"""Mixtures of experts: which of them a token has, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.graph import Builder, Routing, Value, Vector


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts in place of the feed-forward part of a layer.

    Attributes:
        num_experts, num_experts_per_tok: All, and those of one token.
        intermediate_size: Width of an expert.
        shared_intermediate_size: Of the expert that all tokens share; 0: there is none.
        first_dense_layers: The first layers, which have no experts.
        layer_step: Only every so many-th layer has them.
        latent_size: Columns that the experts read and write, between two matrices that all share;
            0: the hidden size.
        scoring: What the scores of a router become: ``"softmax"`` over all experts,
            ``"softmax_of_chosen"``, ``"sigmoid"`` or ``"sparse_mixer"``.
        normalize: A token's weights are divided by their sum.
        scale: Of the weights, at last.
        groups: Of neighbouring experts, of which only some are kept.
        kept_groups: Those with the highest scores.
        best_of_group: How many of its experts' scores, the highest, make up a group's.
    """

    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    first_dense_layers: int = 0
    layer_step: int = 1
    latent_size: int = 0
    scoring: str = "softmax"
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    best_of_group: int = 1


class Mixed(Protocol):
    """A model whose layers may have experts."""

    @property
    def hidden_size(self) -> int:
        """Columns of the hidden states."""
        ...

    @property
    def experts(self) -> ExpertsConfig | None:
        """Sizes and routing of the experts; None: there are none."""
        ...


def route(
    g: Builder,
    c: Mixed,
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


def selection_bias(c: Mixed, w: Weights, layer: int) -> Vector | None:
    """Return the bias that scores get where experts are chosen, but not their weights; None without one."""
    name, count = f"blk.{layer}.exp_probs_b", experts_of(c).num_experts
    if w.has(f"{name}.bias") and w.shape(f"{name}.bias") == (1, count):
        return w.floats(f"{name}.bias", 1, count).ravel()
    return w.bias(name, count)


def gated_experts(
    g: Builder,
    c: Mixed,
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
    c: Mixed,
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
    c: Mixed,
    w: Weights,
    rows: Value,
    layer: int,
    routing: Routing,
    part: str,
    out: int,
) -> Value:
    """Return each row times the matrix ``part`` of its expert: [routed, out]."""
    name, count = f"blk.{layer}.ffn_{part}_exps", experts_of(c).num_experts
    weight = w.experts(name, count, out, rows.cols)
    return g.expert_linear(rows, routing, weight, w.expert_bias(name, count, out))


def shared_expert(
    g: Builder, c: Mixed, w: Weights, x: Value, layer: int, *, add: Value | None = None
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


def experts_of(c: Mixed) -> ExpertsConfig:
    """Return the experts' configuration; the model must have one."""
    assert c.experts is not None
    return c.experts
