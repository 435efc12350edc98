"""Count what the CUDA kernels cost in machine code (SASS); no GPU is needed.

    pip install '.[sass]'                                # nvdisasm; nvcc comes with the CUDA toolkit
    python bench/sass.py [--archs 80,90] [--kernels gemv_q1_1,...] [--json OUT]

For each kernel and architecture: instructions per unit of work (below), loads and stores by width,
registers, spills, shared memory and occupancy. Exits with 1 if a kernel passes its budget
(``bench/sass_budget.json``), which holds for every architecture.

Method. The kernels are compiled as the driver compiles them: one PTX for compute capability 8.0,
assembled by ptxas for each card, whose loops `sass_code.py` finds. A `Part` names the instruction
that does its work (`IDP`: four products); the loop that has most of them in blocks of its own, outside
of inner loops, is the part's. Its cost is that of the cheapest path once round the loop, among those
that meet most of these instructions; divided by their number it does not depend on how far the
compiler unrolled. What only some rounds execute (the end of a block of weights) is the difference to
the dearest such path, times `rare`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "cmake"))
import embed_kernels  # noqa: E402

from sass_code import (  # noqa: E402
    Block,
    Instruction,
    Loop,
    Round,
    blocks_of,
    functions_of,
    loops_of,
    round_of,
)

BUDGETS = Path(__file__).with_name("sass_budget.json")
GENERATION = 80  # compute capability of the PTX: from Ampere on


@dataclass(frozen=True)
class Card:
    """Limits of a multiprocessor (CUDA programming guide, "Technical Specifications per CC")."""

    warps: int
    blocks: int
    shared: int  # bytes, of which a block takes 1 KiB for itself


CARDS = {
    80: Card(64, 32, 164 << 10),
    86: Card(48, 16, 100 << 10),
    89: Card(48, 24, 100 << 10),
    90: Card(64, 32, 228 << 10),
    100: Card(64, 32, 228 << 10),
    120: Card(48, 24, 100 << 10),
}
_REGISTERS = 65_536  # of a multiprocessor
_RESERVED_SHARED = 1 << 10


# --- What kernels do --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A loop of a kernel. A marker is worth 1 / `scale` units of the kernel's work.

    A kernel's parts are in the order in which their loops begin; of the loops that are in this order,
    those with most markers together are chosen.
    `without`: instructions that are nowhere in the loop. `whole`: a round is worth 1 / `scale`
    units, however many markers it has. `rare`: share of the markers that take the dearest path.
    """

    name: str
    marker: str
    scale: float
    without: str | None = None
    whole: bool = False
    rare: float = 0.0


def cost_of(parts: Sequence[Part], blocks: Sequence[Block]) -> dict[str, float]:
    """Return the instructions of each part for a unit of work."""
    loops = sorted(loops_of(blocks), key=lambda loop: loop.header)
    options = [
        [
            (loop.header, found)
            for loop in loops
            if (found := round_of(blocks, loops, loop, part.marker)).markers > 0
            and not (part.without and _has(blocks, loop, part.without))
        ]
        for part in parts
    ]
    in_order = [
        [found for _, found in choice]
        for choice in itertools.product(*options)
        if all(one[0] < other[0] for one, other in itertools.pairwise(choice))
    ]
    if not in_order:
        wanted = ", ".join(f"{part.marker} ({part.name})" for part in parts)
        raise ValueError(f"no loops in this order have the instructions {wanted}")
    chosen = max(in_order, key=lambda rounds: sum(found.markers for found in rounds))
    return {part.name: _per_unit(part, found) for part, found in zip(parts, chosen, strict=True)}


def _per_unit(part: Part, found: Round) -> float:
    instructions = found.cheapest + part.rare * (found.dearest - found.cheapest)
    return instructions * part.scale / (1 if part.whole else found.markers)


def _has(blocks: Sequence[Block], loop: Loop, opcode: str) -> bool:
    return any(re.match(opcode, i.opcode) for b in loop.blocks for i in blocks[b].instructions)


@dataclass(frozen=True)
class Kernel:
    """How a kernel is launched, and in what its work is counted."""

    threads: int  # of a block
    unit: str = ""
    parts: tuple[Part, ...] = ()


_INT_TO_FLOAT = r"I2F$|I2FP?\.F32\.S32"  # not those of divisions: I2F.U32.RP


_HALF_TO_FLOAT = "HADD2"


def gemv(block_columns: int) -> Kernel:
    """Return what gemv.h does for one token: a dot product is 4 weights, a sum 32 of a row.

    All threads make the sums of blocks of weights; half a warp, which costs what a whole one does,
    adds up those of 16 rows.
    """
    return Kernel(
        128,
        "lane instructions a weight",
        (
            Part("products", r"IDP\.4A", 1 / 4),
            Part("scales", _HALF_TO_FLOAT, 1 / block_columns, whole=True),
            Part("sums", _INT_TO_FLOAT, 1 / 32),
            Part("rows", "FFMA", 32 / (16 * block_columns), without=_INT_TO_FLOAT),
        ),
    )


def gemv_of_tokens(tokens: int, block_columns: int) -> Kernel:
    """Return what gemv.h does for several tokens: a thread adds up a row of a token."""
    warps = 16 * tokens // 32
    return Kernel(
        128,
        "lane instructions a weight",
        (
            Part("products", r"IDP\.4A", tokens / 4),
            Part("ordered sum", _INT_TO_FLOAT, warps * 32 / (16 * 32), rare=32 / block_columns),
        ),
    )


def gemm(block_columns: int) -> Kernel:
    """Return what gemm.h does: four tiles of IMMA a segment, staged for four segments at a time."""
    return Kernel(
        256,
        "warp instructions for 4 IMMA",
        (
            Part("staging", "STS", 1 / 4, whole=True),
            Part("products and sums", "IMMA", 4, rare=32 / block_columns),
        ),
    )


def attend(queries: int, rounds: int = 1) -> Kernel:
    """Return what attention.h does for a key, with heads of 128 dims.

    A round of the outer loop is a tile of 64 keys; in it are a loop over dims of keys and one over
    dims of values, which move them to shared memory and have a loop of products.

    Args:
        queries: Of a block.
        rounds: Of the loops over dims.
    """
    products, tile = queries * 128, 128 / 64  # lanes of a block for each key of a tile
    moved = r"LDG\.E\.128|STS\.128"
    return Kernel(
        128,
        f"lane instructions a key ({queries} queries of 128 dims)",
        (
            Part("weights", "SHFL", tile, whole=True),
            Part("moved keys", moved, rounds * tile, without="SHFL", whole=True),
            Part("scores", "FFMA", products, without="SHFL|STS"),
            Part("moved values", moved, rounds * tile, without="SHFL", whole=True),
            Part("values", "FFMA", products, without="SHFL|STS"),
        ),
    )


KERNELS = {
    "gemv_q1_1": gemv(128),
    "gemv_q1_8": gemv_of_tokens(8, 128),
    "gemv_q2_1": gemv(128),
    "gemv_q4_scale32_min_1": gemv(256),
    "gemv_q6_scale16_1": gemv(256),
    "gemv_q8_1": gemv(32),
    "gemm_q1_mma": gemm(128),
    "gemm_q2_mma": gemm(128),
    "gemm_q4_scale32_min_mma": gemm(256),
    "attend_tile_F32": attend(4, rounds=2),
    "attend_tile_F16": attend(4),
    "attend_tile_Q8_0": attend(4),
    "attend_tile_Q4_0": attend(4),
    "attend_part_F16": attend(16),
}


# --- Compilation ------------------------------------------------------------------------------------


def tool(name: str) -> str:
    """Return the path of a tool of NVIDIA's, on PATH or from PyPI's package beside this Python."""
    found = shutil.which(name)
    if found is None:
        places = Path(sys.prefix).glob(f"lib/python*/site-packages/nvidia/*/bin/{name}")
        found = next(map(str, places), None)
    if found is None:
        raise FileNotFoundError(f"{name} is missing: install the CUDA toolkit, or '.[sass]' for it")
    return found


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool; raise `RuntimeError` with its message if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{done.stderr[-4000:]}")
    return done


def source_of(kernels: Iterable[str]) -> str:
    """Return the kernels' source, without the forms and cache types that none of them has."""
    words = set("_".join(kernels).split("_"))
    lines, listed = [], False
    for line in embed_kernels.amalgamate(ROOT / "csrc", embed_kernels.ENTRY, set()).splitlines():
        entry = re.match(r"\s+X\((\w+)\)", line) if listed else None
        listed = line.endswith("\\") and (listed or line.startswith("#define FOR_EACH_"))
        if entry is None or set(entry[1].split("_")) <= words:
            lines.append(line)
        elif not listed:
            lines.append("")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Machine:
    """Machine code of some kernels for one architecture."""

    functions: dict[str, list[str | Instruction]]
    resources: dict[str, dict[str, int]]


class Compiler:
    """Compiles kernels, and keeps what it made in `folder`, by source, flags and nvcc."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._version = run(tool("nvcc"), "--version").stdout

    def compile(self, source: str, kernels: Iterable[str], arch: int) -> Machine:
        """Compile `kernels` of `source`; the others of the source are left out after the PTX."""
        ptx = _only(self._ptx(source), set(kernels))
        stem = self._stem(ptx)
        code, cubin = stem.with_suffix(".ptx"), stem.with_suffix(f".{arch}.cubin")
        said, text = stem.with_suffix(f".{arch}.txt"), stem.with_suffix(f".{arch}.sass")
        if not text.exists():
            code.write_text(ptx)
            said.write_text(run(tool("ptxas"), "-v", f"-arch=sm_{arch}", "-o", cubin, code).stderr)
            text.write_text(run(tool("nvdisasm"), "-c", cubin).stdout)
        return Machine(functions_of(text.read_text()), resources_of(said.read_text()))

    def _ptx(self, source: str) -> str:
        stem = self._stem(source)
        code, ptx = stem.with_suffix(".cu"), stem.with_suffix(".all.ptx")
        if not ptx.exists():
            code.write_text(source)
            flags = [f"-arch=compute_{GENERATION}", *embed_kernels.FLAGS]
            run(tool("nvcc"), "-ptx", *flags, "-o", ptx, code)
        return ptx.read_text()

    def _stem(self, text: str) -> Path:
        key = repr((text, self._version, embed_kernels.FLAGS))
        return self._folder / hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def _only(ptx: str, kernels: set[str]) -> str:
    head, *entries = re.split(r"(?m)^(?=\.visible \.entry )", ptx)
    named = {entry.split("(")[0].split()[-1]: entry for entry in entries}
    if missing := kernels - named.keys():
        raise ValueError(f"no kernel is called {', '.join(sorted(missing))}")
    return head + "".join(entry for name, entry in named.items() if name in kernels)


def resources_of(said: str) -> dict[str, dict[str, int]]:
    """Return what `ptxas -v` says of each kernel: registers, bytes spilled and shared."""
    resources = {}
    for part in said.split("Compiling entry function ")[1:]:
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        registers = re.search(r"Used (\d+) registers", part)
        if spills is None or registers is None:
            raise ValueError(f"ptxas names no registers: {part[:200]!r}")
        shared = re.search(r"(\d+) bytes smem", part)
        resources[part.split("'")[1]] = {
            "registers": int(registers[1]),
            "spills": int(spills[1]) + int(spills[2]),
            "shared": int(shared[1]) if shared else 0,
        }
    return resources


# --- Report -----------------------------------------------------------------------------------------


def widths_of(instructions: Iterable[Instruction]) -> dict[str, dict[int, int]]:
    """Return how many loads and stores have which number of bits."""
    found: dict[str, Counter[int]] = {}
    for i in instructions:
        name, *suffixes = i.opcode.split(".")
        if name in ("LDG", "STG", "LDS", "STS", "LDGSTS", "LDSM"):
            bits = [int(m[1]) for s in suffixes if (m := re.fullmatch(r"[US]?(8|16|64|128)", s))]
            found.setdefault(name, Counter())[bits[0] if bits else 32] += 1
    return {name: dict(sorted(counts.items())) for name, counts in sorted(found.items())}


def warps_of(arch: int, threads: int, registers: int, shared: int) -> int:
    """Return the warps that a multiprocessor holds of a kernel."""
    card, warps = CARDS[arch], threads // 32
    of_a_warp = -(-registers * 32 // 256) * 256  # registers are given out by 256
    # A quarter of the registers belongs to each of four schedulers, with whole warps.
    by_registers = _REGISTERS // 4 // of_a_warp * 4 // warps
    by_shared = card.shared // (shared + _RESERVED_SHARED)
    return min(card.blocks, card.warps // warps, by_registers, by_shared) * warps


def measure(name: str, machine: Machine, arch: int) -> dict[str, Any]:
    """Return one line of the report."""
    kernel, lines = KERNELS[name], machine.functions[name]
    instructions = [line for line in lines if isinstance(line, Instruction)]
    used = machine.resources[name]
    parts = cost_of(kernel.parts, blocks_of(lines))
    warps = warps_of(arch, kernel.threads, used["registers"], used["shared"])
    return {
        "kernel": name,
        "arch": arch,
        "unit": kernel.unit,
        "instructions": round(sum(parts.values()), 3),
        "parts": {part: round(cost, 3) for part, cost in parts.items()},
        "code": sum(i.opcode != "NOP" for i in instructions),
        **used,
        "occupancy": round(warps / CARDS[arch].warps, 3),
        "widths": widths_of(instructions),
    }


def report(
    kernels: Sequence[str], archs: Sequence[int], cache: Path = ROOT / "build" / "sass"
) -> list[dict[str, Any]]:
    """Compile and measure kernels; return a line for each of them and each architecture."""
    compiler, source = Compiler(cache), source_of(kernels)
    machines = {arch: compiler.compile(source, kernels, arch) for arch in archs}
    return [measure(name, machines[arch], arch) for name in kernels for arch in archs]


def passed_budgets(line: dict[str, Any], budget: dict[str, float]) -> list[str]:
    """Return a sentence for each figure of a kernel that is above its budget."""
    return [
        f"{line['kernel']} on sm_{line['arch']}: {what} {line[what]}, the budget is {most}"
        for what, most in budget.items()
        if line[what] > most
    ]


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the report in Markdown."""
    rows = [
        "| kernel | sm | instructions | of them | registers | spills | shared | occupancy | loads |",
        "| --- " * 9 + "|",
    ]
    for line in lines:
        parts = ", ".join(f"{name} {cost:g}" for name, cost in line["parts"].items())
        loads = ", ".join(f"{n} of {bits}" for bits, n in line["widths"].get("LDG", {}).items())
        cells = [line["kernel"], line["arch"], f"{line['instructions']:g}", parts]
        cells += [line["registers"], line["spills"], line["shared"]]
        rows.append("| " + " | ".join(map(str, [*cells, f"{line['occupancy']:.0%}", loads])) + " |")
    units = dict.fromkeys(line["unit"] for line in lines)
    return "\n".join([*rows, "", *(f"- {unit}" for unit in units)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Report on the kernels; return 1 if one passes its budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--archs", default=",".join(map(str, CARDS)))
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--budgets", type=Path, default=BUDGETS)
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "sass")
    options = parser.parse_args(arguments)
    kernels = options.kernels.split(",")
    by_name = {str(arch): arch for arch in CARDS}
    if unknown := [name for name in options.archs.split(",") if name not in by_name]:
        parser.error(f"--archs {unknown[0]}: the architectures are {', '.join(by_name)}")
    archs = [by_name[name] for name in options.archs.split(",")]
    budgets = json.loads(options.budgets.read_text())
    for name in kernels:
        if name not in KERNELS or name not in budgets:
            parser.error(f"{name} has no entry in bench/sass.py's KERNELS or in {options.budgets}")
    lines = report(kernels, archs, options.cache)
    print(table(lines))
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")
    passed = [said for line in lines for said in passed_budgets(line, budgets[line["kernel"]])]
    for said in passed:
        print(said, file=sys.stderr)
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
