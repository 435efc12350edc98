"""Ops of mixtures of experts, each in a graph of its own, against its formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder, Value

TOKENS, EXPERTS, WIDTH = 90, 12, 40
TIERS = _core.cpu.tiers()
Rows = npt.NDArray[np.float32]


def run(make: Callable[[Builder, dict[str, Value]], Value], tier: str, **inputs: Rows) -> Rows:
    """The rows that a graph makes of its inputs."""
    g = Builder()
    out = make(g, {name: g.input(name, rows.shape[1]) for name, rows in inputs.items()})
    g.output("out", g.select_outputs(out))
    batch = _core.Batch()
    batch.add_span(TOKENS, outputs=TOKENS)
    for name, rows in inputs.items():
        batch.set_input(name, rows)
    return _core.CpuDevice(3, tier).compile(g.graph).run(batch)["out"]


def normal(seed: int, columns: int, size: float = 1.0) -> Rows:
    values = np.random.default_rng(seed).standard_normal((TOKENS, columns), dtype=np.float32)
    return values * np.float32(size)


def sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.parametrize("best", [1, 2])
@pytest.mark.parametrize(("groups", "kept"), [(1, 1), (4, 2), (4, 1), (6, 3)])
def test_only_experts_of_the_best_groups_are_chosen(groups: int, kept: int, best: int) -> None:
    scores, bias = normal(1, EXPERTS), normal(2, EXPERTS)[0]
    x = normal(3, WIDTH)
    k = 2

    def make(g: Builder, v: dict[str, Value]) -> Value:
        routing = g.route(
            v["scores"],
            k,
            scoring="sigmoid",
            selection_bias=bias,
            normalize=True,
            scale=1.5,
            groups=groups,
            kept_groups=kept,
            best_of_group=best,
        )
        return g.combine(g.dispatch(v["x"], routing), routing)

    got = {tier: run(make, tier, scores=scores, x=x) for tier in TIERS}
    # The weights of a token sum up to the scale, whoever is chosen.
    np.testing.assert_allclose(got["scalar"], 1.5 * x, rtol=1e-5, atol=1e-6)
    assert len({rows.tobytes() for rows in got.values()}) == 1
    chosen = chosen_experts(make, scores, x)
    probability = sigmoid(scores.astype(np.float64))
    for t in range(TOKENS):
        rank = probability[t] + bias
        by_group = rank.reshape(groups, -1)
        score = np.sort(by_group, axis=1)[:, -best:].sum(axis=1)
        allowed = np.isin(np.arange(EXPERTS) // (EXPERTS // groups), np.argsort(-score)[:kept])
        wanted = set(np.argsort(np.where(allowed, -rank, np.inf))[:k].tolist())
        assert chosen[t] == wanted


def chosen_experts(
    make: Callable[[Builder, dict[str, Value]], Value], scores: Rows, x: Rows
) -> list[set[int]]:
    """By trial: an expert counts for a token if the result hangs on its score."""
    base = run(weighing(make), "scalar", scores=scores, x=np.ones_like(x))
    found: list[set[int]] = [set() for _ in range(TOKENS)]
    for e in range(EXPERTS):
        changed = scores.copy()
        changed[:, e] -= 1e-3
        rows = run(weighing(make), "scalar", scores=changed, x=np.ones_like(x))
        for t in np.flatnonzero((rows != base).any(axis=1)):
            found[t].add(e)
    return found


def weighing(
    make: Callable[[Builder, dict[str, Value]], Value],
) -> Callable[[Builder, dict[str, Value]], Value]:
    """The same without the division by the sum of the weights, which hides them."""

    def plain(g: Builder, v: dict[str, Value]) -> Value:
        route = g.route
        g.route = lambda *a, **k: route(*a, **{**k, "normalize": False})  # type: ignore[method-assign]
        return make(g, v)

    return plain


@pytest.mark.parametrize("tier", TIERS)
def test_weights_multiply_the_inputs_of_experts_or_their_results(tier: str) -> None:
    scores, x = normal(4, EXPERTS), normal(5, WIDTH)

    def before(g: Builder, v: dict[str, Value]) -> Value:
        routing = g.route(v["scores"], 3, scoring="softmax")
        return g.combine(g.dispatch(v["x"], routing, weighted=True), routing, weighted=False)

    def after(g: Builder, v: dict[str, Value]) -> Value:
        routing = g.route(v["scores"], 3, scoring="softmax")
        return g.combine(g.dispatch(v["x"], routing), routing)

    p = np.exp(scores.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    wanted = x * np.sort(p, axis=1)[:, -3:].sum(axis=1, keepdims=True)
    for make in (before, after):
        got = run(make, tier, scores=scores, x=x)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        assert got.tobytes() == run(make, "scalar", scores=scores, x=x).tobytes()


@pytest.mark.parametrize("tier", TIERS)
def test_the_clamped_unit_is_what_its_formula_says(tier: str) -> None:
    gate, up = normal(6, WIDTH, 8.0), normal(7, WIDTH, 8.0)
    got = run(lambda g, v: g.clamped_swiglu(v["gate"], v["up"]), tier, gate=gate, up=up)
    below = np.minimum(gate.astype(np.float64), 7.0)
    wanted = below * sigmoid(1.702 * below) * (np.clip(up, -7.0, 7.0) + 1.0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert (gate > 7).any()
    assert (np.abs(up) > 7).any()


def test_a_gate_counts_for_its_row() -> None:
    x, gate = normal(8, WIDTH), normal(9, 1)
    got = run(lambda g, v: g.gate_rows(v["x"], v["gate"]), "scalar", x=x, gate=gate)
    np.testing.assert_allclose(got, x * sigmoid(gate.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "more experts are chosen"),
        ({"k": 13}, "more experts are chosen"),
        ({"groups": 5}, "no such groups"),
        ({"groups": 0}, "no such groups"),
        ({"groups": 4, "kept_groups": 5}, "more groups of experts"),
        ({"groups": 4, "kept_groups": 0}, "more groups of experts"),
        ({"groups": 12, "kept_groups": 3, "k": 4}, "more experts are chosen"),
        ({"groups": 12, "best_of_group": 2}, "fewer experts than its score needs"),
        ({"selection_bias": np.zeros(5, np.float32)}, "vector"),
        ({"scoring": "relu"}, "no scoring of experts is called relu"),
    ],
)
def test_routing_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    g = Builder()
    with pytest.raises(RequestError, match=message):
        g.route(g.input("scores", EXPERTS), **{"k": 2, **options})  # type: ignore[arg-type]
