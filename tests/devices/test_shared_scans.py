"""Processes that share a model's rows each keep the recurrent state of their heads alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from test_tensor_parallel import Meeting

from oxibonsai import _core
from oxibonsai.devices import open_device
from oxibonsai.graph import Builder, Value

HEADS, DIM, STATES = 12, 16, 24
WIDTH = HEADS * DIM
INPUT = 64


def random(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


def matrix(rows: int, cols: int, seed: int = 0) -> _core.Weight:
    blocks = _core.encode(random(rows, cols, seed=seed), "Q8_0", None)
    return _core.Weight.from_blocks(f"{rows}.{seed}.weight", "Q8_0", blocks, cols, 1)


def decay(*shape: int) -> npt.NDArray[np.float32]:
    return -np.exp(random(*shape, seed=1))


def gated_delta(key_heads: int, *, tiled: bool) -> Callable[[Builder, Value], Value]:
    def describe(b: Builder, x: Value) -> Value:
        width = 2 * key_heads * DIM + WIDTH
        qkv, alpha, beta = b.linear(
            x, matrix(width, INPUT), matrix(HEADS, INPUT), matrix(HEADS, INPUT, seed=1)
        )
        qkv = b.conv1d(qkv, random(width, 4), silu=True)
        return b.gated_delta(
            qkv, alpha, beta, dt_bias=random(HEADS), decay=decay(HEADS), key_heads=key_heads,
            key_dim=DIM, value_dim=DIM, tiled=tiled, eps=1e-6,
        )  # fmt: skip

    return describe


def mamba2(groups: int) -> Callable[[Builder, Value], Value]:
    def describe(b: Builder, x: Value) -> Value:
        xbc, step = b.linear(x, matrix(WIDTH + 2 * groups * STATES, INPUT), matrix(HEADS, INPUT))
        return b.mamba2_scan(
            xbc, step, dt_bias=random(HEADS), decay=decay(HEADS), skip=random(HEADS, seed=2),
            groups=groups, state_dim=STATES,
        )  # fmt: skip

    return describe


def mamba(b: Builder, x: Value) -> Value:
    sizes = (WIDTH, WIDTH, STATES, STATES)
    x, step, to_state, from_state = b.linear(
        x, *(matrix(n, INPUT, seed=i) for i, n in enumerate(sizes))
    )
    return b.mamba_scan(
        x, step, to_state, from_state, dt_bias=random(WIDTH), skip=random(WIDTH, seed=2),
        decay=decay(WIDTH, STATES),
    )  # fmt: skip


def wkv7(b: Builder, x: Value) -> Value:
    r, w, k, v, kk, a = b.linear(x, *(matrix(WIDTH, INPUT, seed=i) for i in range(6)))
    return b.wkv7_scan(r, w, k, v, b.scale(kk, 0.02), b.sigmoid(a), head_dim=DIM)


# A scan, whether what it makes stays with its heads until it is put together for the matrix behind.
SCANS = {
    "gated delta rule": (gated_delta(4, tiled=False), True),
    "gated delta rule, tiled": (gated_delta(4, tiled=True), False),
    "Mamba-2, four groups": (mamba2(4), True),
    "Mamba-2, one group": (mamba2(1), True),
    "Mamba": (mamba, True),
    "RWKV-7": (wkv7, True),
}


def layer(name: str) -> _core.Graph:
    """Heads of a scan, each with a norm, beside gates; then a matrix."""
    b = Builder()
    x = b.input("x", INPUT)
    (gates,) = b.linear(x, matrix(WIDTH, INPUT, seed=9))
    heads = SCANS[name][0](b, x)
    y = b.swiglu(gates, b.head_norm(heads, random(DIM), 1e-6))
    (out,) = b.linear(y, matrix(INPUT, WIDTH))
    b.output("out", out)
    return b.graph


def run(graph: _core.Graph) -> list[bytes]:
    """Of a prompt, and of two tokens that go on from its state."""
    device = open_device("cpu", 1)
    executable, slots = device.compile(graph), device.make_slots(graph.slot_entries, 1)
    results = []
    for first, rows in ((0, 19), (19, 2)):
        batch = _core.Batch()
        batch.add_span(rows, first=first)
        batch.set_input("x", random(rows, INPUT))
        results.append(executable.run(batch, [], slots)["out"].tobytes())
    return results


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", SCANS)
def test_a_share_has_the_bytes_of_one_process_and_the_state_of_its_heads(
    name: str, ranks: int
) -> None:
    graph, meeting = layer(name), Meeting(ranks)
    shares = [_core.Sharding(meeting.exchange(rank)).share(graph) for rank in range(ranks)]
    whole = run(graph)
    with ThreadPoolExecutor(ranks) as threads:
        for of_rank in threads.map(run, shares):
            assert of_rank == whole
    # The scan's is the last entry; the convolution's is every process's.
    states = [share.slot_entries[-1] for share in shares]
    assert sum(states) == graph.slot_entries[-1]
    assert max(states) <= -(-4 // ranks) * graph.slot_entries[-1] // 4


@pytest.mark.parametrize("name", SCANS)
def test_what_a_scan_makes_is_put_together_once(name: str) -> None:
    share = _core.Sharding(Meeting(2).exchange(0)).share(layer(name))
    messages = [columns for _, columns in _core.Sharding.messages(share)]
    before, after = (1, 1) if SCANS[name][1] else (1, 2)
    assert len(messages) == before + after + 1  # and the result
    assert messages[-1] == INPUT // 2


def test_fewer_heads_than_processes_are_replicated() -> None:
    graph = layer("gated delta rule")
    share = _core.Sharding(Meeting(5).exchange(0)).share(graph)
    assert share.slot_entries == graph.slot_entries
