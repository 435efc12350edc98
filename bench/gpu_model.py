"""Calculate how long the CUDA kernels take on cards, from their machine code; no GPU is needed.

    pip install '.[sass]'                 # as for bench/sass.py
    python bench/gpu_model.py [--position 512] [--prompt 512] [--json OUT]

Nothing here is measured on a card. A kernel takes the longest of three times, and a launch:

- issue: warp instructions of the multiprocessor that has most blocks, four in a cycle; the
  instructions are those that bench/sass.py counts;
- memory: bytes that the kernel must read and write, at the card's peak bandwidth;
- latency: round trips to memory, and instructions of a warp on which the others wait, that follow
  one another in a block, for each time that the multiprocessors are filled with blocks.

What the last block of a launch does when the others have ended is added to that.

Real kernels are slower where two of them add up, and faster where caches hold what is counted as
memory. The model is Bonsai 8B (Qwen3's shape) with Q1_0 weights and keys and values in float16.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sass


@dataclass(frozen=True)
class Card:
    """A card's published figures; clocks are those of the boost."""

    arch: int  # whose machine code stands for the card's
    processors: int
    gigahertz: float
    bandwidth: float  # GB/s
    int8: float  # tera-operations per second, dense


CARDS = {
    # NVIDIA Ada GPU architecture whitepaper; GeForce RTX 4060 product page (242 sparse).
    "RTX 4060": Card(89, 24, 2.46, 272, 121),
    "RTX 4090": Card(89, 128, 2.52, 1008, 660.6),
    # NVIDIA RTX Blackwell GPU architecture whitepaper.
    "RTX 5090": Card(120, 170, 2.407, 1792, 838),
    # L40S datasheet.
    "L40S": Card(89, 142, 2.52, 864, 733),
    # H100 whitepaper (SXM5) and datasheet; the H200 has its multiprocessors, and other memory.
    "H100": Card(90, 132, 1.83, 3350, 1979),
    "H200": Card(90, 132, 1.83, 4800, 1979),
    # DGX Spark datasheet; clock and int8 follow from 31 TFLOPS of float32 (Hot Chips 2025) and a
    # quarter of 1,000 TOPS, which count sparse products of 4 bits.
    "GB10": Card(120, 48, 2.52, 273, 250),
}
# Cycles of a round trip to DRAM and to the L2 cache, as microbenchmarks find them on recent cards.
DRAM, L2 = 600, 270
# Cycles between instructions of a warp that others wait for: some depend on the one before (4).
ALONE = 2
# Cycles in which a warp rounds some groups to int8 at once: 11 shuffles of 25 and two divisions.
ROUND = 400
LAUNCH = 1.3  # microseconds of a launch within a CUDA graph
HOST = 95.0  # microseconds of C++ a step, measured with a driver that does nothing

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 36, 4096, 12288, 32, 8, 128, 151_936
GROUP, WEIGHT_BYTES = 128, 1.125 / 8  # Q1_0
PAGE, PART = 64, 512  # positions of a tile of attention, and of a part
QUERY_WIDTH, KV_WIDTH = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


@dataclass(frozen=True)
class Work:
    """What a launch has to do."""

    blocks: int
    warp_instructions: float  # of a block
    memory: float  # bytes of the whole launch
    serial: float  # cycles in which a block waits
    resident: int = 1_000  # blocks that a multiprocessor holds
    int8: float = 0.0  # multiply-adds of the tensor cores
    after: float = 0.0  # cycles of the last block, behind all others


@dataclass(frozen=True)
class Time:
    """Microseconds of a launch by each of its limits."""

    issue: float
    memory: float
    latency: float
    tensor: float = 0.0
    after: float = 0.0

    @property
    def total(self) -> float:
        return max(self.issue, self.memory, self.latency, self.tensor) + self.after + LAUNCH

    @property
    def limit(self) -> str:
        names = ("issue", "memory", "latency", "tensor", "after")
        limits = {name: getattr(self, name) for name in names}
        limits["launch"] = LAUNCH
        return max(limits, key=lambda name: limits[name])


def time_of(work: Work, card: Card) -> Time:
    """Return the time of a launch."""
    cycles_per_us = card.gigahertz * 1e3
    busiest = -(-work.blocks // card.processors)
    waves = -(-busiest // work.resident)
    return Time(
        issue=busiest * work.warp_instructions / 4 / cycles_per_us,
        memory=work.memory / card.bandwidth / 1e3,
        latency=waves * work.serial / cycles_per_us,
        tensor=2 * work.int8 / card.int8 / 1e6,
        after=work.after / cycles_per_us,
    )


class Counts:
    """What bench/sass.py counted for one architecture."""

    def __init__(self, lines: Sequence[dict[str, Any]], arch: int) -> None:
        self._lines = {line["kernel"]: line for line in lines if line["arch"] == arch}
        self._warps = sass.CARDS[arch].warps

    def __getitem__(self, kernel: str) -> float:
        return float(self._lines[kernel]["instructions"])

    def part(self, kernel: str, name: str) -> float:
        """Return the instructions of one part of a kernel."""
        return float(self._lines[kernel]["parts"][name])

    def resident(self, kernel: str) -> int:
        """Return how many blocks a multiprocessor holds."""
        warps = float(self._lines[kernel]["occupancy"]) * self._warps
        return round(warps * 32 / sass.KERNELS[kernel].threads)


def gemv(counts: Counts, rows: int, cols: int) -> Work:
    """One token through a matrix: a block has 16 rows, and 1,024 columns at a time.

    It waits for weights, for their scales, for those of activations; then each thread makes the sums
    of a row's block of weights, and a thread for each row adds up its blocks.
    """
    kernel = "gemv_q1_1"
    steps, blocks = -(-cols // 1024), 1024 // GROUP
    # From lane instructions for a weight to those of one thread.
    sums = (counts.part(kernel, "scales") + counts.part(kernel, "sums")) * GROUP
    rows_sum = counts.part(kernel, "rows") * GROUP * 16 / 32 * blocks
    step = DRAM + 2 * L2 + (sums + rows_sum) * ALONE
    return Work(
        blocks=rows // 16,
        warp_instructions=counts[kernel] * 16 * cols / 32,
        memory=rows * cols * WEIGHT_BYTES,
        serial=steps * step,
        resident=counts.resident(kernel),
    )


def gemm(counts: Counts, rows: int, cols: int, tokens: int) -> Work:
    """Many tokens: a block has 64 rows and 64 tokens; a segment is 4 IMMA of each of 8 warps."""
    kernel = "gemm_q1_mma"
    blocks = -(-rows // 64) * -(-tokens // 64)
    segments = cols // 32
    return Work(
        blocks=blocks,
        warp_instructions=segments * 8 * counts[kernel],
        memory=rows * cols * WEIGHT_BYTES + tokens * (cols * 1.25 + rows * 4),
        serial=segments / 4 * (L2 + 4 * counts.part(kernel, "products and sums") * ALONE),
        resident=counts.resident(kernel),
        int8=float(rows) * cols * tokens,
    )


def attend(counts: Counts, tokens: int, position: int) -> Work:
    """Attention of new tokens, the last of which sees `position` positions.

    A token's blocks take a tile each, those of a prompt four tokens and a part. A block waits for the
    tables of its rows and pages, then for keys; it computes on them while values come, and for a
    tile its warps are alone.
    """
    decoding = tokens == 1
    kernel, rows = ("attend_tile_F16", 1) if decoding else ("attend_part_F16", 4)
    pieces = -(-position // (PAGE if decoding else PART))
    keys = position / pieces if decoding else min(position, PART) / 2
    tiles = max(keys / PAGE, 1)
    products = counts[kernel] * keys / 128 * ALONE  # of a thread
    return Work(
        blocks=-(-tokens // rows) * KV_HEADS * pieces,
        warp_instructions=keys * counts[kernel] / 32,
        memory=position * 2 * KV_WIDTH * 2 + partial_bytes(tokens, pieces),
        serial=3 * L2 + (2 * DRAM if decoding else tiles * L2) + products,
        resident=counts.resident(kernel),
    )


def partial_bytes(tokens: int, pieces: int) -> float:
    """Return what attention leaves for each piece of the context that a token sees, in bytes."""
    return tokens * HEADS * pieces * (HEAD_DIM + 2) * 4.0


def merge(tokens: int, position: int) -> Work:
    """The pieces of a head's result: their largest scores, their sums, then part by part their values."""
    parts = -(-position // PART)
    pieces = -(-position // PAGE) if tokens == 1 else parts
    return Work(
        blocks=tokens * HEADS,
        warp_instructions=0.0,
        memory=partial_bytes(tokens, pieces) + tokens * QUERY_WIDTH * 4.0,
        serial=(3 + parts) * L2,
        resident=8,
    )


def small(tokens: int, values: int, waits: float) -> Work:
    """A kernel without a hot loop: what it reads and writes, and the cycles in which a block waits."""
    return Work(tokens, 0.0, tokens * values * 4.0, waits, resident=8)


def norm_waits(threads: int) -> float:
    """Cycles in which a block waits that norms a row and rounds it.

    64 threads have HIDDEN / 64 values each, 16 of them in flight, and a chain of as many fmas, of four
    cycles; then all threads read the row, and in each round a thread reads weights and rounds four values
    with its warp's others, which are four groups.
    """
    chain, rounds = HIDDEN // 64, HIDDEN / threads / 4
    return (chain // 16 + 1) * L2 + chain * 4 + rounds * (L2 + ROUND)


def joined(work: Work, waits: float) -> Work:
    """A launch whose last block goes on: a trip for the counter, one for what the others wrote."""
    return replace(work, after=2 * L2 + waits)


def attend_one(counts: Counts, position: int) -> Work:
    """A token's attention with what is before and behind it.

    A block waits for its heads, for the weights of their norm and for their angles, then attends to a
    tile; the last block of a key-value head merges the tiles, a warp a head: HEAD_DIM / 32 groups, one
    after the other.
    """
    work = attend(counts, 1, position)
    work = replace(work, serial=work.serial + 3 * L2)
    return joined(work, merge(1, position).serial - L2 + HEAD_DIM // 32 * ROUND)


def launches(counts: Counts, tokens: int, position: int) -> dict[str, tuple[int, Work]]:
    """Return the launches of a step by name, and how often each comes."""

    def matrix(rows: int, cols: int) -> Work:
        return gemv(counts, rows, cols) if tokens == 1 else gemm(counts, rows, cols, tokens)

    norm = small(tokens, 3 * HIDDEN, norm_waits(256))
    down = matrix(HIDDEN, INNER)
    rest = {
        # Of the last token alone.
        "output": (1, gemv(counts, VOCABULARY, HIDDEN)),
        "largest logit": (2, small(1, VOCABULARY, 4 * L2)),
    }
    if tokens == 1:
        # Matrices that read the same row share a launch, in which its last block does what follows.
        normed = norm_waits(128)
        return {
            "norms": (2, norm),  # the first and the last
            "q, k, v": (LAYERS, matrix(QUERY_WIDTH + 2 * KV_WIDTH, HIDDEN)),
            "attention": (LAYERS, attend_one(counts, position)),
            "o, norm": (LAYERS, joined(matrix(HIDDEN, QUERY_WIDTH), normed)),
            "gate, up, gated": (LAYERS, joined(matrix(2 * INNER, HIDDEN), ROUND)),
            "down, norm": (LAYERS - 1, joined(down, normed)),
            "last down": (1, down),
            **rest,
        }
    return {
        "norms": (2 * LAYERS + 1, norm),
        "q": (LAYERS, matrix(QUERY_WIDTH, HIDDEN)),
        "k, v": (2 * LAYERS, matrix(KV_WIDTH, HIDDEN)),
        "heads, rope, pages": (LAYERS, small(tokens, 2 * (QUERY_WIDTH + 2 * KV_WIDTH), 4 * L2)),
        "attention": (LAYERS, attend(counts, tokens, position)),
        "its pieces": (LAYERS, merge(tokens, position)),
        "o": (LAYERS, matrix(HIDDEN, QUERY_WIDTH)),
        "gate, up": (2 * LAYERS, matrix(INNER, HIDDEN)),
        "gated": (LAYERS, small(tokens, 2 * INNER, 2 * L2 + ROUND)),
        "down": (LAYERS, down),
        **rest,
    }


def calculate(counts: Counts, card: Card, tokens: int, position: int) -> dict[str, Any]:
    """Return the microseconds of a step: each kernel's, its limit, and their sum."""
    kernels: dict[str, dict[str, Any]] = {}
    for name, (times, work) in launches(counts, tokens, position).items():
        time = time_of(work, card)
        kernels[name] = {
            "us": round(times * time.total, 1),
            "each": round(time.total, 2),
            "limit": time.limit,
        }
    step = sum(kernel["us"] for kernel in kernels.values()) + HOST
    return {"kernels": kernels, "us": round(step, 1), "tokens_per_s": round(tokens / step * 1e6)}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return a step on each card in Markdown, in microseconds with the limit of each kernel."""
    rows = ["| us of a step | " + " | ".join(results) + " |", "| --- " * (len(results) + 1) + "|"]
    for name in next(iter(results.values()))["kernels"]:
        cells = [r["kernels"][name] for r in results.values()]
        rows.append(
            f"| {name} | " + " | ".join(f"{c['us']:.0f} {c['limit']}" for c in cells) + " |"
        )
    rows.append("| host | " + " | ".join(f"{HOST:.0f}" for _ in results) + " |")
    rows.append("| sum | " + " | ".join(f"{r['us']:.0f}" for r in results.values()) + " |")
    speeds = " | ".join(f"{r['tokens_per_s']:,}" for r in results.values())
    return "\n".join([*rows, f"| tokens a second | {speeds} |"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the calculated times of a token and of a prompt."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--position", type=int, default=512, help="context of the decoded token")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if min(options.position, options.prompt) < 1:
        parser.error("--position and --prompt must be at least 1")
    kernels = ["gemv_q1_1", "gemm_q1_mma", "attend_tile_F16", "attend_part_F16"]
    lines = sass.report(kernels, sorted({card.arch for card in CARDS.values()}))
    steps = {"decode": (1, options.position), "prompt": (options.prompt, options.prompt)}
    results = {
        step: {
            name: calculate(Counts(lines, card.arch), card, tokens, position)
            for name, card in CARDS.items()
        }
        for step, (tokens, position) in steps.items()
    }
    print(f"Calculated: one token at position {options.position}\n\n{table(results['decode'])}\n")
    print(f"Calculated: a prompt of {options.prompt} tokens\n\n{table(results['prompt'])}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
