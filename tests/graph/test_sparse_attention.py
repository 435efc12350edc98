"""Attention of encoders to a part of the tokens: global tokens (Longformer), blocks (BigBird)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.graph import Builder, Value

Rows = npt.NDArray[np.float32]
# How often each query sees each key: [queries, keys].
Counts = npt.NDArray[np.int64]
DIM, HEADS, KV_HEADS = 16, 2, 1
# Parts of the context have 512 positions.
LENGTHS = (1, 7, 130, 600)
TOTAL = sum(LENGTHS)
RANDOM = np.random.default_rng(8)
Q = RANDOM.standard_normal((TOTAL, HEADS * DIM), dtype=np.float32)
K, V = (RANDOM.standard_normal((TOTAL, KV_HEADS * DIM), dtype=np.float32) for _ in range(2))


def attend(device: _core.CpuDevice, lengths: tuple[int, ...], first: int, **mask: object) -> Rows:
    b = Builder()
    q, k, v = b.input("q", Q.shape[1]), b.input("k", K.shape[1]), b.input("v", K.shape[1])
    y: Value = b.attend_local(q, k, v, head_dim=DIM, scale=0.3, **mask)  # type: ignore[arg-type]
    b.output("y", y)
    batch = _core.Batch()
    for length in lengths:
        batch.add_span(length)
    rows = slice(first, first + sum(lengths))
    for name, values in (("q", Q), ("k", K), ("v", V)):
        batch.set_input(name, values[rows])
    return device.compile(b.graph).run(batch)["y"]


def expected(counts: Callable[[int], Counts]) -> npt.NDArray[np.float64]:
    results, first = [], 0
    for n in LENGTHS:
        rows = slice(first, first + n)
        group = HEADS // KV_HEADS
        q, k, v = (
            x[rows].astype(np.float64).reshape(n, -1, DIM).repeat(repeats, 1)
            for x, repeats in ((Q, 1), (K, group), (V, group))
        )
        scores = np.einsum("qhd,khd->hqk", q, k) * 0.3
        weights = np.exp(scores - scores.max()) * counts(n)
        sums = weights.sum(-1, keepdims=True)
        weights /= np.where(sums == 0, 1, sums)
        results.append(np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1))
        first += n
    return np.concatenate(results)


def positions(n: int) -> tuple[Counts, Counts]:
    i = np.arange(n)
    return i[:, None], i[None, :]


def global_counts(window: int, tokens: int, queries: str) -> Callable[[int], Counts]:
    def counts(n: int) -> Counts:
        q, k = positions(n)
        seen = (np.abs(q - k) <= (window or n)) | (k < tokens)
        return (((q < tokens) & (k >= 0)) if queries == "global" else ((q >= tokens) & seen)) * 1

    return counts


def block_counts(size: int, random: int) -> Callable[[int], Counts]:
    def counts(n: int) -> Counts:
        q, k = (x // size for x in positions(n))
        last = (n - 1) // size
        everything = (q == 0) | (q == last) | (n <= (5 + 2 * random) * size)
        near = (np.abs(q - k) <= 1) | (k == 0) | (k == last)
        return np.where(everything, 1, near + random * (k == 0))

    return counts


CASES = {
    "global": ({"global_tokens": 2, "queries": "global"}, global_counts(0, 2, "global")),
    "others": (
        {"global_tokens": 2, "queries": "others", "window": 9},
        global_counts(9, 2, "others"),
    ),
    "many global tokens": (
        {"global_tokens": 520, "queries": "others", "window": 300},
        global_counts(300, 520, "others"),
    ),
    "others everywhere": ({"global_tokens": 1, "queries": "others"}, global_counts(0, 1, "others")),
    "blocks": ({"block_size": 8, "random_blocks": 2}, block_counts(8, 2)),
    "blocks without random ones": ({"block_size": 100}, block_counts(100, 0)),
    "long blocks": ({"block_size": 64, "random_blocks": 3}, block_counts(64, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_query_sees_what_the_mask_says(name: str) -> None:
    mask, counts = CASES[name]
    found = attend(_core.CpuDevice(2), LENGTHS, 0, **mask)
    np.testing.assert_allclose(found, expected(counts), atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_tiers_threads_and_company_do_not_change_a_byte(name: str) -> None:
    mask, _ = CASES[name]
    found = {
        attend(_core.CpuDevice(threads, tier), LENGTHS, 0, **mask).tobytes()
        for tier in _core.cpu.tiers()
        for threads in (1, 3)
    }
    device = _core.CpuDevice(20)  # so many that an item is a part of the context
    alone = [attend(device, (n,), sum(LENGTHS[:i]), **mask) for i, n in enumerate(LENGTHS)]
    assert found == {np.concatenate(alone).tobytes()}


@pytest.mark.parametrize(
    "mask",
    [
        {"window": -1},
        {"global_tokens": -1, "queries": "others"},
        {"global_tokens": 1},
        {"queries": "others"},
        {"global_tokens": 1, "queries": "global", "window": 4},
        {"global_tokens": 1, "queries": "some"},
        {"block_size": -8},
        {"block_size": 8, "random_blocks": -1},
        {"block_size": 8, "random_blocks": 1000},
        {"random_blocks": 1},
        {"block_size": 8, "window": 4},
        {"block_size": 8, "causal": True},
        {"causal": True, "window": 4},
    ],
)
def test_a_mask_that_makes_no_sense_is_a_typed_error(mask: dict[str, object]) -> None:
    with pytest.raises(OxiBonsaiError):
        attend(_core.CpuDevice(1), (9,), 0, **mask)
