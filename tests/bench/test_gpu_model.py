"""bench/gpu_model.py: from counts to times; truth is calculated by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gpu_model
import sass

# 10 multiprocessors at 1 GHz: 1,000 cycles and 100 KB of memory a microsecond.
CARD = gpu_model.Card(arch=90, processors=10, gigahertz=1, bandwidth=100, int8=2)


@pytest.mark.parametrize(
    ("work", "us", "limit"),
    [
        # Two blocks on the busiest multiprocessor, four instructions a cycle.
        (gpu_model.Work(11, 40_000, 0, 0), 20, "issue"),
        (gpu_model.Work(10, 40_000, 0, 0), 10, "issue"),
        (gpu_model.Work(1, 0, 5e5, 0), 5, "memory"),
        # Five blocks of the busiest, two at a time: three after one another.
        (gpu_model.Work(50, 0, 0, 4_000, resident=2), 12, "latency"),
        (gpu_model.Work(1, 0, 0, 0, int8=7e6), 7, "tensor"),
        (gpu_model.Work(1, 4, 1, 1), 0.001, "launch"),
        # What the last block does comes behind the longest of them.
        (gpu_model.Work(10, 40_000, 0, 0, after=3_000), 13, "issue"),
        (gpu_model.Work(10, 4_000, 0, 0, after=3_000), 4, "after"),
        # The longest one counts, not their sum.
        (gpu_model.Work(10, 40_000, 5e5, 9_000), 10, "issue"),
    ],
)
def test_a_launch_takes_the_longest_of_its_times(
    work: gpu_model.Work, us: float, limit: str
) -> None:
    time = gpu_model.time_of(work, CARD)
    assert time.total == pytest.approx(us + gpu_model.LAUNCH)
    assert time.limit == limit


def counts() -> gpu_model.Counts:
    """Counts that no card has, so that each figure shows."""
    kernels: dict[str, tuple[float, dict[str, float]]] = {
        "gemv_q1_1": (3.0, {"products": 2.0, "scales": 0.5, "sums": 0.25, "rows": 0.25}),
        "gemm_q1_mma": (200.0, {"staging": 20.0, "products and sums": 180.0}),
        "attend_tile_F16": (4000.0, {"weights": 400.0}),
        "attend_part_F16": (9600.0, {"weights": 1600.0}),
    }
    lines = [
        {"kernel": name, "arch": 90, "instructions": total, "parts": parts, "occupancy": 0.5}
        for name, (total, parts) in kernels.items()
    ]
    return gpu_model.Counts(lines, 90)


def test_the_work_of_a_matrix() -> None:
    work = gpu_model.gemv(counts(), rows=4096, cols=2048)
    assert work.blocks == 256
    assert work.warp_instructions == 3 * 16 * 2048 / 32
    assert work.memory == 4096 * 2048 / 128 * 18  # blocks of 128 weights are 18 bytes
    # Two steps: trips for weights and for scales, then 96 instructions of each thread for a block
    # of 128 weights, and 16 of one for each of 8 blocks.
    assert work.serial == 2 * (600 + 2 * 270 + (96 + 8 * 16) * 2)
    assert work.resident == 8  # half of 64 warps, four a block


def test_the_work_of_a_prompt() -> None:
    work = gpu_model.gemm(counts(), rows=4096, cols=1024, tokens=512)
    assert work.blocks == 64 * 8
    assert work.warp_instructions == 32 * 8 * 200
    assert work.int8 == 4096 * 1024 * 512


def test_the_work_of_attention() -> None:
    work = gpu_model.attend(counts(), tokens=1, position=600)
    assert work.blocks == 8 * 10  # tiles of 64
    assert work.warp_instructions == pytest.approx(60 * 4000 / 32)
    # 8 heads of keys and values, 128 dims of 2 bytes; for each of 32 heads and 10 tiles 130 floats.
    assert work.memory == 600 * 2 * 8 * 128 * 2 + 32 * 10 * 130 * 4
    # Three tables, keys and values; then 60 keys for each of four warps.
    assert work.serial == pytest.approx(3 * 270 + 2 * 600 + 60 * 4000 / 128 * 2)
    prompt = gpu_model.attend(counts(), tokens=512, position=512)
    assert prompt.blocks == 512 / 4 * 8
    assert prompt.warp_instructions == 256 * 9600 / 32  # half of the keys, on average
    assert prompt.serial == 3 * 270 + 4 * 270 + 256 * 9600 / 128 * 2


def test_the_work_of_merging() -> None:
    work = gpu_model.merge(tokens=1, position=600)
    assert work.blocks == 32
    assert work.memory == 32 * 10 * 130 * 4 + 4096 * 4
    assert work.serial == (3 + 2) * 270
    assert gpu_model.merge(tokens=3, position=600).memory == 3 * (32 * 2 * 130 * 4 + 4096 * 4)


def test_the_work_of_a_last_block() -> None:
    # Four trips for a chain of 64 values and one for the row, its fmas, then rounds with a trip each.
    assert gpu_model.norm_waits(128) == 5 * 270 + 64 * 4 + 8 * 670
    assert gpu_model.norm_waits(256) == 5 * 270 + 64 * 4 + 4 * 670
    work = gpu_model.Work(7, 1, 2, 3)
    assert gpu_model.joined(work, 100) == gpu_model.Work(7, 1, 2, 3, after=2 * 270 + 100)
    tiles, one = gpu_model.attend(counts(), 1, 600), gpu_model.attend_one(counts(), 600)
    assert one.serial == tiles.serial + 3 * 270
    # The counter and the tiles, two parts, and four groups of a head.
    assert one.after == 2 * 270 + (3 + 2 - 1) * 270 + 4 * 400


def test_a_step_is_the_sum_of_its_launches() -> None:
    launches = gpu_model.launches(counts(), 1, 512)
    assert sum(times for times, _ in launches.values()) == 36 * 5 + 2 + 1 + 2
    result: dict[str, Any] = gpu_model.calculate(counts(), CARD, 1, 512)
    total = sum(kernel["us"] for kernel in result["kernels"].values()) + gpu_model.HOST
    assert result["us"] == pytest.approx(total, abs=0.1)
    assert result["tokens_per_s"] == round(1e6 / total)
    # All of the weights once, but for the table of embeddings.
    weights = sum(
        times * work.memory
        for name, (times, work) in launches.items()
        if name in ("q, k, v", "o, norm", "gate, up, gated", "down, norm", "last down", "output")
    )
    assert weights == (36 * (6144 * 4096 + 4096 * 4096 + 3 * 12288 * 4096) + 151936 * 4096) * 9 / 64


def test_every_card_has_machine_code_that_is_counted() -> None:
    assert {card.arch for card in gpu_model.CARDS.values()} <= sass.CARDS.keys()
    with pytest.raises(SystemExit):
        gpu_model.main(["--position", "0"])


def test_the_table_has_each_card_and_its_limits() -> None:
    result = gpu_model.calculate(counts(), CARD, 1, 512)
    text = gpu_model.table({"one": result, "two": json.loads(json.dumps(result))})
    assert text.splitlines()[0] == "| us of a step | one | two |"
    assert text.count("| attention |") == 1
    assert text.endswith(f"| {result['tokens_per_s']:,} | {result['tokens_per_s']:,} |")
