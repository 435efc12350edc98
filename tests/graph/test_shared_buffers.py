"""Values of any width share memory, and activations replace what they read: no value is lost."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.graph import Builder, Value

Floats = npt.NDArray[np.float32]
ROWS, WIDTH, MOST = 7, 12, 200
X = np.random.default_rng(5).standard_normal((ROWS, WIDTH), dtype=np.float32)


def random_graph(seed: int, ops: int = 60) -> tuple[Builder, Floats]:
    """Exact ops over values of many widths, made early and read late; and their result by numpy."""
    rng, g = random.Random(seed), Builder()
    values: list[tuple[Value, Floats]] = [(g.input("x", WIDTH), X)]
    for _ in range(ops):
        value, truth = rng.choice(values[-8:])
        kind = rng.choice(("relu", "add", "narrow", "wide"))
        if kind == "relu":
            values.append((g.relu(value), np.maximum(truth, 0.0)))
        elif kind == "narrow" and value.cols > 1:
            first = rng.randrange(value.cols - 1)
            count = rng.randint(1, value.cols - first)
            part = g.select_columns(value, first, count)
            values.append((part, truth[:, first : first + count]))
        elif kind == "wide" and value.cols < MOST:
            other, beside = rng.choice(values)
            joined = g.join_heads(value, other, 1)
            values.append((joined, np.concatenate([truth, beside], axis=1)))
        else:
            same = [v for v in values if v[0].cols == value.cols]
            other, beside = rng.choice(same)
            values.append((g.add(value, other), truth + beside))
    result, wanted = values[-1]
    for value, truth in rng.sample(values, 20):
        result = g.join_heads(result, value, 1)
        wanted = np.concatenate([wanted, truth], axis=1)
    g.output("y", result)
    return g, wanted


@pytest.mark.parametrize("seed", range(20))
def test_no_value_is_written_over_before_its_last_reader(seed: int) -> None:
    g, wanted = random_graph(seed)
    batch = _core.Batch()
    batch.add_span(ROWS)
    batch.set_input("x", X)
    for threads in (1, 3):
        compiled = _core.CpuDevice(threads).compile(g.graph)
        for _ in range(2):  # buffers hold the values of the step before
            np.testing.assert_array_equal(compiled.run(batch)["y"], wanted)


def test_what_an_activation_reads_is_kept_where_it_is_read_again() -> None:
    g = Builder()
    x = g.scale(g.input("x", WIDTH), 2.0)
    positive = g.relu(x)
    g.output("y", g.add(g.relu(positive), x))
    batch = _core.Batch()
    batch.add_span(ROWS)
    batch.set_input("x", X)
    found = _core.CpuDevice(1).compile(g.graph).run(batch)["y"]
    np.testing.assert_array_equal(found, np.maximum(2.0 * X, 0.0) + 2.0 * X)
