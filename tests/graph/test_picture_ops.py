"""Ops of pictures against torch, and the same bytes on every tier in tiles of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder, Value

torch = pytest.importorskip("torch")

Floats = npt.NDArray[np.float32]
TIERS = _core.cpu.tiers()


def live(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def run(graph: _core.Graph, x: Floats, threads: int = 2, tier: str = "") -> Floats:
    """The result of a picture [h, w, channels], as [pixels, channels]."""
    batch = _core.Batch()
    batch.add_span(x.shape[0] * x.shape[1])
    batch.set_grid(x.shape[1])
    batch.set_input("x", x.reshape(-1, x.shape[2]))
    return _core.CpuDevice(threads, tier).compile(graph).run(batch)["y"]


def same_everywhere(graph: _core.Graph, x: Floats) -> Floats:
    want = run(graph, x, 1, "scalar")
    for tier in TIERS:
        for threads in (1, 2, 5):
            got = run(graph, x, threads, tier)
            np.testing.assert_array_equal(got, want, err_msg=f"{tier}, {threads} threads")
    return want


def described(channels: int, ops: Callable[[Builder, Value], Value]) -> _core.Graph:
    g = Builder()
    g.output("y", ops(g, g.input("x", channels)))
    return g.graph


def to_torch(x: Floats) -> Any:
    return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))[None]


def rows(x: Any) -> Floats:
    return np.asarray(x[0].flatten(1).T.numpy(), np.float32)


# Channels before and behind, kernel, stride, enlargement, padding: the shapes of an autoencoder, and
# blocks and vectors of channels, and runs of pixels, that are not full.
CONVOLUTIONS = [
    (3, 16, 3, 1, 1, 1),
    (16, 3, 3, 1, 1, 1),
    (40, 33, 3, 1, 1, 1),
    (8, 70, 1, 1, 1, 0),
    (24, 48, 3, 1, 2, 1),
    (5, 17, 5, 1, 1, 2),
]
SIZES = [(1, 1), (5, 13), (18, 31)]


@pytest.mark.parametrize("shape", CONVOLUTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_a_convolution_is_that_of_torch(
    shape: tuple[int, int, int, int, int, int], size: tuple[int, int]
) -> None:
    into, out, kernel, stride, upsample, pad = shape
    weight, bias = live(out, into, kernel, kernel, seed=1), live(out, seed=2)
    graph = described(
        into,
        lambda g, x: g.conv2d(x, weight, bias, stride=stride, upsample=upsample, pad=pad),
    )
    x = live(*size, into)
    large = torch.nn.functional.interpolate(to_torch(x), scale_factor=upsample, mode="nearest")
    want = torch.nn.functional.conv2d(
        large, torch.from_numpy(weight), torch.from_numpy(bias), stride, pad
    )
    np.testing.assert_allclose(same_everywhere(graph, x), rows(want), rtol=1e-4, atol=1e-4)


def test_a_stride_of_two_has_zeros_on_the_right_and_at_the_bottom() -> None:
    weight = live(12, 7, 3, 3, seed=1)
    g = Builder()
    g.output("y", g.conv2d(g.input("x", 7, pixels=2), weight, stride=2))
    x = live(10, 26, 7)
    batch = _core.Batch()
    batch.add_span(5 * 13)
    batch.set_grid(13)
    batch.set_input("x", x.reshape(-1, 7))
    got = _core.CpuDevice(3).compile(g.graph).run(batch)["y"]
    padded = torch.nn.functional.pad(to_torch(x), (0, 1, 0, 1))
    want = torch.nn.functional.conv2d(padded, torch.from_numpy(weight), stride=2)
    np.testing.assert_allclose(got, rows(want), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_norm_before_a_convolution_is_that_of_torch(size: tuple[int, int], silu: bool) -> None:
    weight, gain, shift = live(20, 24, 3, 3, seed=1), live(24, seed=2), live(24, seed=3)
    added = live(20, 24, 1, 1, seed=4)

    def ops(g: Builder, x: Value) -> Value:
        moments = g.group_moments(x, 8, 1e-6)
        norm = gain, shift
        residual = g.conv2d(x, added)
        return g.conv2d(x, weight, moments=moments, norm=norm, silu=silu, pad=1, add=residual)

    x = live(*size, 24) * 3 + np.arange(24, dtype=np.float32)
    normed = torch.nn.functional.group_norm(
        to_torch(x), 8, torch.from_numpy(gain), torch.from_numpy(shift), 1e-6
    )
    normed = torch.nn.functional.silu(normed) if silu else normed
    want = torch.nn.functional.conv2d(normed, torch.from_numpy(weight), padding=1)
    want = want + torch.nn.functional.conv2d(to_torch(x), torch.from_numpy(added))
    graph = described(24, ops)
    np.testing.assert_allclose(same_everywhere(graph, x), rows(want), rtol=1e-3, atol=2e-3)


def test_tiny_numbers_become_zero() -> None:
    """No convolution and no norm gives a result that only some processors can tell from zero."""
    weight = np.full((3, 2, 1, 1), 2.0**-70, np.float32)
    graph = described(2, lambda g, x: g.conv2d(x, weight))
    assert not same_everywhere(graph, np.ones((2, 3, 2), np.float32)).any()


def modulated(change: Callable[[Builder, Value, list[Value]], Value], width: int) -> _core.Graph:
    g = Builder()
    x = g.input("x", width, own_rows=True)
    other = g.input("other", width, own_rows=True)
    given = g.input("given", width, sequences=True)
    joined = change(g, g.join_rows(other, x), [given])
    first, last = g.split_rows(joined, other, x)
    g.output("first", first)
    g.output("last", last)
    return g.graph


def step(x: Floats, other: Floats, given: Floats) -> _core.Batch:
    batch = _core.Batch()
    batch.add_span(len(x) + len(other))
    batch.set_input("x", x)
    batch.set_input("other", other)
    batch.set_input("given", given)
    return batch


@pytest.mark.parametrize("width", [1, 30, 1100])
def test_rows_are_shifted_scaled_and_gated(width: int) -> None:
    x, other, given = live(7, width), live(3, width, seed=1), live(1, width, seed=2)

    def change(g: Builder, rows: Value, given: list[Value]) -> Value:
        changed = g.modulate(rows, given[0], g.scale(given[0], 2.0))
        return g.add_gated(rows, changed, given[0])

    graph = modulated(change, width)
    both = np.concatenate([other, x])
    want = both + given * (both * (1 + given) + 2 * given)
    results = []
    for tier in TIERS:
        out = _core.CpuDevice(2, tier).compile(graph).run(step(x, other, given))
        results.append(np.concatenate([out["first"], out["last"]]))
        np.testing.assert_allclose(results[-1], want, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(results[-1], results[0], err_msg=tier)


def test_sinusoids_are_exact() -> None:
    g = Builder()
    frequencies = np.array([1.0, 0.37, 1e-4], np.float32)
    g.output("y", g.sinusoids(g.input("x", 1), frequencies))
    values = np.array([[0.0], [958.0853882], [1000.0], [-3.25]], np.float32)
    batch = _core.Batch()
    batch.add_span(4)
    batch.set_input("x", values)
    got = _core.CpuDevice(1).compile(g.graph).run(batch)["y"]
    angles = (values * frequencies).astype(np.float64)
    want = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(got, want, atol=4e-8)


def test_what_does_not_fit_is_an_error() -> None:
    weight = live(4, 6, 3, 3)
    g = Builder()
    x = g.input("x", 6)
    for wrong in (
        lambda: g.conv2d(x, live(4, 5, 3, 3)),
        lambda: g.conv2d(x, weight, live(3)),
        lambda: g.conv2d(x, weight, pad=3),
        lambda: g.conv2d(x, weight, stride=2),
        lambda: g.conv2d(x, weight, silu=True),
        lambda: g.conv2d(x, weight, moments=g.group_moments(x, 3, 1e-6)),
        lambda: g.conv2d(x, weight, add=x),
        lambda: g.group_moments(x, 4, 1e-6),
        lambda: g.group_moments(g.input("own", 6, own_rows=True), 3, 1e-6),
        lambda: g.modulate(x, x, x),
        lambda: g.sinusoids(x, np.ones(3, np.float32)),
        lambda: g.join_rows(x, x),
        lambda: g.input("two kinds", 3, own_rows=True, sequences=True),
    ):
        with pytest.raises(RequestError):
            wrong()
    graph = described(6, lambda g, x: g.conv2d(x, weight, pad=1))
    executable = _core.CpuDevice(1).compile(graph)
    for spans, width in (([6], 0), ([6], 4), ([3, 3], 3)):
        batch = _core.Batch()
        for count in spans:
            batch.add_span(count)
        batch.set_grid(width)
        batch.set_input("x", live(6, 6))
        with pytest.raises(RequestError, match=r"grid|one sequence"):
            executable.run(batch)
    wrong_sum = step(live(7, 5), live(3, 5), live(1, 5))
    wrong_sum.set_input("x", live(6, 5))
    with pytest.raises(RequestError, match="another number of rows"):
        _core.CpuDevice(1).compile(modulated(lambda g, r, _: r, 5)).run(wrong_sum)
