"""Ops over recurrent state: their formulas in float64, and the same bytes however they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder, Value
from oxibonsai.models.parity import compare_ops

TIERS = _core.cpu.tiers()
ROWS = 70
Floats = npt.NDArray[np.float64]
Inputs = dict[str, npt.NDArray[np.float32]]
RANDOM = np.random.default_rng(4)


def normal(*shape: int, size: float = 1.0) -> npt.NDArray[np.float32]:
    return (RANDOM.standard_normal(shape) * size).astype(np.float32)


def softplus(x: Floats) -> Floats:
    return np.logaddexp(0, x)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


@dataclass
class Case:
    """An op as the builder makes it of its inputs, and what its formula says of them."""

    widths: dict[str, int]
    build: Callable[[Builder, dict[str, Value]], Value]
    formula: Callable[[dict[str, Floats]], Floats]

    def graph(self) -> _core.Graph:
        g = Builder()
        made = self.build(g, {n: g.input(n, w) for n, w in self.widths.items()})
        g.output("y", g.select_outputs(made))
        return g.graph

    def inputs(self) -> Inputs:
        random = np.random.default_rng(9)
        return {
            n: random.standard_normal((ROWS, w)).astype(np.float32) for n, w in self.widths.items()
        }


def gated_delta(key_heads: int, heads: int, key_dim: int, value_dim: int, tiled: bool) -> Case:
    bias, decay = normal(heads), -np.exp(normal(heads) - 2)
    keys = key_heads * key_dim
    eps = 1e-6

    def build(g: Builder, v: dict[str, Value]) -> Value:
        return g.gated_delta(
            v["qkv"], v["alpha"], v["beta"], dt_bias=bias, decay=decay, key_heads=key_heads,
            key_dim=key_dim, value_dim=value_dim, tiled=tiled, eps=eps,
        )  # fmt: skip

    def formula(x: dict[str, Floats]) -> Floats:
        n = len(x["qkv"])
        q = x["qkv"][:, :keys].reshape(n, key_heads, key_dim)
        k = x["qkv"][:, keys : 2 * keys].reshape(n, key_heads, key_dim)
        v = x["qkv"][:, 2 * keys :].reshape(n, heads, value_dim)
        q = q / np.sqrt((q * q).sum(-1, keepdims=True) + eps) / np.sqrt(key_dim)
        k = k / np.sqrt((k * k).sum(-1, keepdims=True) + eps)
        g = np.exp(decay * softplus(x["alpha"] + bias))
        beta = sigmoid(x["beta"])
        out = np.zeros((n, heads, value_dim))
        for h in range(heads):
            source = h % key_heads if tiled else h * key_heads // heads
            state = np.zeros((key_dim, value_dim))
            for t in range(n):
                state *= g[t, h]
                written = beta[t, h] * (v[t, h] - state.T @ k[t, source])
                state += np.outer(k[t, source], written)
                out[t, h] = state.T @ q[t, source]
        return out.reshape(n, -1)

    widths = {"qkv": 2 * keys + heads * value_dim, "alpha": heads, "beta": heads}
    return Case(widths, build, formula)


def mamba2(heads: int, head_dim: int, groups: int, state_dim: int) -> Case:
    bias, decay, skip = normal(heads), -np.exp(normal(heads) - 2), normal(heads)
    inner = heads * head_dim

    def build(g: Builder, v: dict[str, Value]) -> Value:
        return g.mamba2_scan(
            v["xbc"], v["dt"], dt_bias=bias, decay=decay, skip=skip, groups=groups,
            state_dim=state_dim,
        )  # fmt: skip

    def formula(v: dict[str, Floats]) -> Floats:
        n = len(v["dt"])
        x = v["xbc"][:, :inner].reshape(n, heads, head_dim)
        b, c = v["xbc"][:, inner:].reshape(n, 2, groups, state_dim).swapaxes(0, 1)
        dt = softplus(v["dt"] + bias)
        out = np.zeros((n, heads, head_dim))
        for h in range(heads):
            group, state = h * groups // heads, np.zeros((state_dim, head_dim))
            for t in range(n):
                state = np.exp(decay[h] * dt[t, h]) * state
                state += np.outer(b[t, group], dt[t, h] * x[t, h])
                out[t, h] = state.T @ c[t, group] + skip[h] * x[t, h]
        return out.reshape(n, -1)

    return Case({"xbc": inner + 2 * groups * state_dim, "dt": heads}, build, formula)


def mamba(channels: int, state_dim: int) -> Case:
    bias, skip = normal(channels), normal(channels)
    decay = -np.exp(normal(channels, state_dim) - 2)

    def build(g: Builder, v: dict[str, Value]) -> Value:
        return g.mamba_scan(v["x"], v["dt"], v["b"], v["c"], dt_bias=bias, decay=decay, skip=skip)

    def formula(v: dict[str, Floats]) -> Floats:
        dt = softplus(v["dt"] + bias)
        state, out = np.zeros((channels, state_dim)), []
        for t in range(len(dt)):
            state = np.exp(decay * dt[t, :, None]) * state
            state += v["b"][t] * (dt[t] * v["x"][t])[:, None]
            out.append(state @ v["c"][t] + skip * v["x"][t])
        return np.array(out)

    return Case({"x": channels, "dt": channels, "b": state_dim, "c": state_dim}, build, formula)


def wkv7(heads: int, dim: int) -> Case:
    def build(g: Builder, v: dict[str, Value]) -> Value:
        # A removal key longer than 1 would let the state grow without end.
        kk, a = g.scale(v["kk"], 0.1), g.sigmoid(v["a"])
        return g.wkv7_scan(v["r"], v["w"], v["k"], v["v"], kk, a, head_dim=dim)

    def formula(x: dict[str, Floats]) -> Floats:
        n = len(x["r"])
        x = {name: rows.reshape(n, heads, dim) for name, rows in x.items()}
        decay = np.exp(-np.exp(-0.5) * sigmoid(x["w"]))
        out = np.zeros((n, heads, dim))
        for h in range(heads):
            state = np.zeros((dim, dim))
            for t in range(n):
                kk, a, k, v, r = (x[name][t, h] for name in ("kk", "a", "k", "v", "r"))
                kk, a = 0.1 * kk, sigmoid(a)
                state = decay[t, h][:, None] * state - np.outer(kk * a, state.T @ kk)
                state += np.outer(k, v)
                out[t, h] = state.T @ r
        return out.reshape(n, -1)

    widths = dict.fromkeys(("r", "w", "k", "v", "kk", "a"), heads * dim)
    return Case(widths, build, formula)


def conv(channels: int, taps: int, biased: bool, silu: bool) -> Case:
    weight, bias = normal(channels, taps), normal(channels) if biased else None

    def formula(v: dict[str, Floats]) -> Floats:
        padded = np.concatenate([np.zeros((taps - 1, channels)), v["x"]])
        out = sum(padded[j : j + len(v["x"])] * weight[:, j] for j in range(taps))
        out = out + (0 if bias is None else bias)
        return np.asarray(out * sigmoid(out) if silu else out)

    return Case({"x": channels}, lambda g, v: g.conv1d(v["x"], weight, bias, silu=silu), formula)


CASES = {
    "delta": gated_delta(2, 2, 32, 32, tiled=False),
    "delta grouped": gated_delta(2, 6, 16, 32, tiled=False),
    "delta tiled": gated_delta(3, 6, 32, 16, tiled=True),
    "delta with tails": gated_delta(1, 3, 13, 21, tiled=True),
    "mamba 2": mamba2(4, 32, 1, 32),
    "mamba 2 groups": mamba2(6, 16, 2, 64),
    "mamba 2 tails": mamba2(2, 19, 1, 7),
    "mamba": mamba(64, 16),
    "mamba tails": mamba(37, 6),
    "wkv7": wkv7(2, 32),
    "wkv7 tails": wkv7(3, 13),
    "conv": conv(48, 4, biased=False, silu=False),
    "conv silu": conv(300, 3, biased=True, silu=True),
}


@dataclass
class Runs:
    executable: _core.Executable
    slots: _core.Slots
    inputs: Inputs

    @classmethod
    def of(cls, case: Case, tier: str = "scalar", threads: int = 1) -> Runs:
        graph = case.graph()
        executable = _core.CpuDevice(threads, tier).compile(graph)
        return cls(executable, _core.Slots(graph.slot_entries, 3), case.inputs())

    def run(self, *spans: tuple[int, int, int]) -> list[npt.NDArray[np.float32]]:
        """(slot, first, last) of each span, whose rows are those of the same text."""
        batch = _core.Batch()
        for slot, first, last in spans:
            batch.add_span(last - first, first=first, slot=slot, outputs=last - first)
        for name, values in self.inputs.items():
            batch.set_input(name, np.concatenate([values[a:b] for _, a, b in spans]))
        rows = self.executable.run(batch, [], self.slots)["y"]
        ends = np.cumsum([b - a for _, a, b in spans])
        return np.split(rows, ends[:-1])


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_an_op_does_what_its_formula_says(case: Case) -> None:
    (rows,) = Runs.of(case).run((0, 0, ROWS))
    wanted = case.formula({n: v.astype(np.float64) for n, v in case.inputs().items()})
    assert wanted.std() > 0.02
    assert np.abs(rows - wanted).max() <= 3e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_gives_the_bytes_of_scalar_however_a_text_is_cut(case: Case, tier: str) -> None:
    (truth,) = Runs.of(case).run((0, 0, ROWS))
    runs = Runs.of(case, tier, 2)
    for size in (1, 7, 64, ROWS):
        cut = [(0, a, min(a + size, ROWS)) for a in range(0, ROWS, size)]
        found = np.concatenate([runs.run(span)[0] for span in cut])
        assert found.tobytes() == truth.tobytes(), f"chunks of {size}"
    beside = runs.run((0, 0, 9), (2, 0, 40), (1, 0, 1))
    again = runs.run((1, 1, 30), (0, 9, 10), (2, 40, ROWS))
    rows = np.concatenate([beside[1], again[2]])
    assert rows.tobytes() == truth.tobytes()
    assert np.concatenate([beside[0], again[1]]).tobytes() == truth[:10].tobytes()
    devices = _core.CpuDevice(2, tier), _core.CpuDevice(1, "scalar")
    assert compare_ops(case.graph(), *devices) == []


def test_a_scan_goes_on_from_a_copy_of_its_slot(case: Case) -> None:
    runs = Runs.of(case)
    (truth,) = runs.run((0, 0, ROWS))
    runs.run((0, 0, 64))
    runs.slots.copy(0, 1)
    runs.run((0, 64, 66))
    assert runs.run((1, 64, ROWS))[0].tobytes() == truth[64:].tobytes()


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("tier", TIERS)
def test_states_within_a_span_are_those_of_shorter_spans(case: Case, tier: str, first: int) -> None:
    graph, end = case.graph(), first + 21
    executable = _core.CpuDevice(2, tier).compile(graph)
    slots = _core.Slots(graph.slot_entries, 8)

    def run(begin: int, last: int, slot: int, row_slots: list[int]) -> bytes:
        batch = _core.Batch()
        n = last - begin
        batch.add([0] * n, first=begin, slot=slot, outputs=n, row_slots=row_slots)
        for name, values in case.inputs().items():
            batch.set_input(name, values[begin:last])
        return executable.run(batch, [], slots)["y"].tobytes()

    if first:
        run(0, first, 0, [])
    slots.copy(0, 1)
    plain = run(first, end, 0, [])
    assert run(first, end, 1, [7, 3, 4]) == plain
    assert slots.read(1) == slots.read(0)
    for slot, last in ((7, end - 3), (3, end - 2), (4, end - 1)):
        if first:
            run(0, first, 2, [])
        run(first, last, 2, [])
        assert slots.read(slot) == slots.read(2)
    for wrong, message in (([1], "two spans use the slot 1"), ([8], "no such slot: 8 of 8")):
        with pytest.raises(RequestError, match=message):
            run(first, end, 1, wrong)
    with pytest.raises(RequestError, match="more rows than the span has"):
        run(0, 1, 1, [2])


def test_columns_and_heads_move_as_they_say() -> None:
    g = Builder()
    x = g.input("x", 24)
    g.output("a", g.select_outputs(g.select_columns(x, 2, 3, 6)))
    g.output("b", g.select_outputs(g.select_columns(x, 20, 4)))
    g.output("c", g.select_outputs(g.transpose_heads(x, 2, 3)))
    values = normal(5, 24)
    batch = _core.Batch()
    batch.add_span(5, outputs=5)
    batch.set_input("x", values)
    found = _core.CpuDevice(1, "scalar").compile(g.graph).run(batch)
    assert (found["a"] == values.reshape(5, 4, 6)[:, :, 2:5].reshape(5, -1)).all()
    assert (found["b"] == values[:, 20:]).all()
    assert (found["c"] == values.reshape(5, 2, 3, 4).swapaxes(1, 2).reshape(5, -1)).all()


def graph_with(slot: int, *widths: int) -> tuple[_core.Graph, list[Value]]:
    graph = _core.Graph()
    graph.add_slot(slot)
    return graph, [graph.input(f"x{i}", w) for i, w in enumerate(widths)]


def test_shapes_that_do_not_fit_are_refused() -> None:
    ones = np.ones(4, np.float32)
    graph, (x, heads, other) = graph_with(4 * 8 * 16, 2 * 2 * 8 + 4 * 16, 4, 3)
    good = (ones, -ones, 2, 8, 16, True, 1e-6, 0)
    graph.gated_delta(x, heads, heads, *good)
    for qkv, alpha, beta, args, message in [
        (x, heads, other, good, "alpha and beta"),
        (x, heads, heads, (ones, -ones, 3, 8, 16, True, 1e-6, 0), "no multiple"),
        (x, heads, heads, (ones, -ones, 2, 9, 16, True, 1e-6, 0), "width is not"),
        (x, heads, heads, (ones, -ones, 0, 8, 16, True, 1e-6, 0), "positive"),
        (x, heads, heads, (ones[:3], -ones, 2, 8, 16, True, 1e-6, 0), "another width"),
        (x, heads, heads, (ones, -ones, 2, 8, 16, True, 1e-6, 1), "no such slot"),
    ]:
        with pytest.raises(RequestError, match=message):
            graph.gated_delta(qkv, alpha, beta, *args)
    graph, (xbc, dt) = graph_with(4 * 8 * 16, 4 * 16 + 2 * 8, 4)
    graph.mamba2_scan(xbc, dt, ones, -ones, ones, 1, 8, 0)
    for groups, state_dim, message in [
        (3, 8, "no multiple"), (0, 8, "positive"), (1, 9, "no equal heads"), (1, 64, "no equal"),
        (2, 4, "another size"),
    ]:  # fmt: skip
        with pytest.raises(RequestError, match=message):
            graph.mamba2_scan(xbc, dt, ones, -ones, ones, groups, state_dim, 0)
    graph, (x, b, c) = graph_with(16 * 2, 4, 2, 3)
    with pytest.raises(RequestError, match="b and c"):
        graph.mamba_scan(x, x, b, c, ones, -np.ones(8, np.float32), ones, 0)
    with pytest.raises(RequestError, match="within a period"):
        graph.select_columns(x, 2, 3, 4)
    with pytest.raises(RequestError, match="whole periods"):
        graph.select_columns(x, 0, 1, 3)
    with pytest.raises(RequestError, match="no such heads"):
        graph.transpose_heads(x, 2, 3)
