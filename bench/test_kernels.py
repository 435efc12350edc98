"""Each linear kernel as a share of its limit: memory for few rows, int8 multiplies for many.

    pytest bench/test_kernels.py --benchmark-json=OUT.json [-k Q1_0]

Weights that lie in memory (128 MB) meet 1, 4 and 8 rows of activations, as in generation; a matrix
of 4096 x 4096 meets 512 rows, as in a prompt. Weights that are floats are not multiplied as int8, and
have no prompt rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.devices import default_threads

COLS = 4096
MEMORY_BYTES = 128 << 20  # far more than any cache of a small machine
BANDWIDTH_BYTES = 1 << 29
PROMPT_ROWS = 512
TYPES = {str(t["name"]): t for t in _core.quant_types()}
FLOATS = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
TIERS = [t for t in _core.cpu.tiers() if t != "scalar"]


@pytest.fixture(scope="module")
def pool() -> _core.ThreadPool:
    return _core.ThreadPool(default_threads())


@pytest.fixture(scope="module")
def peaks(pool: _core.ThreadPool) -> dict[str, float]:
    return {tier: pool.int8_peak(tier, 5) for tier in TIERS}


def make_linear(tier: str, name: str, rows: int, pool: _core.ThreadPool) -> Any:
    row_bytes = COLS // TYPES[name]["group"] * TYPES[name]["bytes"]
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    blocks &= np.uint8(0x3B)  # scales are finite
    return _core.cpu.Linear(tier, name, blocks, COLS, pool)


def activations(rows: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(1).standard_normal((rows, COLS)).astype(np.float32)


def describe(benchmark: Any, name: str, tier: str, rows: int, limit: str, most: float) -> None:
    """Adds what bench/plot.py reads; `most` is the limit's rate in runs per second."""
    share = 1.0 / (benchmark.stats.stats.median * most)
    benchmark.extra_info.update(kernel=name, tier=tier, rows=rows, limit=limit, share=share)


def measure_streaming(
    name: str, tier: str, rows: int, benchmark: Any, pool: _core.ThreadPool
) -> None:
    linear = make_linear(tier, name, rows_in_memory(name), pool)
    linear.set_input(activations(rows))
    # Around each run, because a shared machine's bandwidth changes within minutes.
    before = pool.read_bandwidth(BANDWIDTH_BYTES, 2)
    benchmark.pedantic(linear.run, rounds=7, warmup_rounds=1)
    bandwidth = max(before, pool.read_bandwidth(BANDWIDTH_BYTES, 2))
    describe(benchmark, name, tier, rows, "bandwidth", bandwidth / linear.nbytes)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", TYPES)
def test_generation(name: str, tier: str, benchmark: Any, pool: _core.ThreadPool) -> None:
    measure_streaming(name, tier, 1, benchmark, pool)


@pytest.mark.parametrize("rows", [4, 8])
@pytest.mark.parametrize("tier", TIERS[-1:])
@pytest.mark.parametrize("name", TYPES)
def test_small_batches(
    name: str, tier: str, rows: int, benchmark: Any, pool: _core.ThreadPool
) -> None:
    measure_streaming(name, tier, rows, benchmark, pool)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", [n for n in TYPES if n not in FLOATS])
def test_prompt(
    name: str, tier: str, benchmark: Any, pool: _core.ThreadPool, peaks: dict[str, float]
) -> None:
    linear = make_linear(tier, name, COLS, pool)
    linear.set_input(activations(PROMPT_ROWS))
    benchmark.pedantic(linear.run, rounds=5, warmup_rounds=1)
    products = COLS * COLS * PROMPT_ROWS
    describe(benchmark, name, tier, PROMPT_ROWS, "int8 multiplies", peaks[tier] / products)


def rows_in_memory(name: str) -> int:
    """Rows that take MEMORY_BYTES as stored."""
    return MEMORY_BYTES // int(COLS // TYPES[name]["group"] * TYPES[name]["bytes"])
