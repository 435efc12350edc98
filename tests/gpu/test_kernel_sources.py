"""The one source of the GPU kernels as CUDA, Metal and OpenCL see it. No device is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))
import embed_kernels  # noqa: E402
import split_spirv  # noqa: E402

CSRC = ROOT / "csrc"
KERNELS = sorted((CSRC / "gpu" / "kernels").glob("*.h"))
STUB = Path(__file__).parent / "metal_stub"

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None or shutil.which("ptxas") is None, reason="needs nvcc and ptxas"
)
needs_clang = pytest.mark.skipif(shutil.which("clang++") is None, reason="needs clang++")

# Cards from Turing on; those from Ampere on get the PTX with int8 matrix products.
CARDS = {75: [75], 80: [80, 86, 89, 90, 100, 120]}
SAMPLE: dict[int, list[int]] = {75: [], 80: [90]}  # for every change


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def ptx(folder: Path, generation: int, source: str = '#include "gpu/kernels/all.h"\n') -> str:
    kernels, output = folder / "kernels.cu", folder / f"kernels_{generation}.ptx"
    kernels.write_text(source)
    done = run(
        *("nvcc", "-std=c++17", f"-arch=compute_{generation}", "-ptx", "-fmad=false"),
        *(f"-I{CSRC}", kernels, "-o", output),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return output.read_text()


def broken_arithmetic(text: str) -> list[str]:
    """Instructions that round in another way than the CPU, or that may be joined to one that does."""
    broken = []
    for line in text.splitlines():
        code = line.strip()
        if re.search(r"\.(approx|ftz|full)\b", code) or re.search(r"\bmad\.[a-z.]*f32", code):
            broken.append(code)
        elif re.match(r"(add|sub|mul|fma|div|sqrt|rcp)\.[a-z.]*f32", code):
            if not re.match(r"[a-z]+\.rn\.f32\b", code):
                broken.append(code)
        elif re.match(r"(min|max)\.[a-z.]*f32", code):
            # As a comparison with a number that is not NaN it is the same; of two values it is not.
            if not re.search(r"0f[0-9A-F]{8};$", code):
                broken.append(code)
        elif re.match(r"[a-z]+\.[a-z.]*f64", code):
            broken.append(code)
    return broken


@needs_nvcc
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cards",
    [
        pytest.param(SAMPLE, id="sample", marks=pytest.mark.slow),
        pytest.param(CARDS, id="all", marks=pytest.mark.release),
    ],
)
def test_cuda_compiles_for_cards_with_the_arithmetic_of_the_cpu(
    tmp_path: Path, cards: dict[int, list[int]]
) -> None:
    texts = {generation: ptx(tmp_path, generation) for generation in CARDS}
    shapes = {g: set(re.findall(r"mma\.sync\.aligned\.(\w+)", text)) for g, text in texts.items()}
    assert shapes == {75: {"m8n8k16"}, 80: {"m16n8k16", "m16n8k32"}}
    for text in texts.values():
        assert len(re.findall(r"fma\.rn\.f32", text)) > 1000
        assert broken_arithmetic(text) == []

    # As it is embedded: in the PTX version that the oldest drivers with its instructions take.
    oldest = dict(embed_kernels.GENERATIONS)
    sources = {g: tmp_path / f"kernels_{g}.ptx" for g in CARDS}
    for generation, source in sources.items():
        source.write_text(embed_kernels.relabelled(texts[generation], oldest[generation]))

    def assemble(generation: int, card: int) -> str:
        output = tmp_path / f"{card}.cubin"
        return run("ptxas", f"-arch=sm_{card}", "-O1", sources[generation], "-o", output).stderr

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(assemble, g, card) for g, some in cards.items() for card in some]
        assert [job.result() for job in jobs if job.result()] == []


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        "y[0] = __fdividef(x[0], 3.0f);",
        "y[0] = __expf(x[0]);",
        "y[0] = fmaxf(x[0], x[1]);",
        "y[0] = float(double(x[0]) * 3.0 + 1e-9);",
        'float f; asm("add.f32 %0, %1, %2;" : "=f"(f) : "f"(x[0]), "f"(x[1])); y[0] = f;',
    ],
)
def test_other_arithmetic_is_noticed(tmp_path: Path, mutant: str) -> None:
    source = '#include "gpu/dialect.h"\nstruct Args { int n; };\n'
    source += f"KERNEL(mutant, Args, READ(1, float, x), WRITE(2, float, y)) {{ {mutant} }}\n"
    assert broken_arithmetic(ptx(tmp_path, 80, source))


def metal(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Metal's form, read by clang++ with real address spaces but without Metal's library."""
    path = folder / "kernels.cc"
    path.write_text(source)
    return run(
        *("clang++", "--target=aarch64-linux-gnu", "-std=c++17", "-fsyntax-only", "-Werror"),
        *("-Wno-unknown-attributes", "-Wno-unknown-pragmas", "-Wno-unused-function"),
        *("-D__METAL_VERSION__=310", "-isystem", STUB, f"-I{CSRC}", path),
    )


@needs_clang
def test_metal_keeps_address_spaces(tmp_path: Path) -> None:
    done = metal(tmp_path, '#include "gpu/kernels/all.h"\n')
    assert done.returncode == 0, done.stderr[-4000:]


@needs_clang
@pytest.mark.parametrize(
    "mutant",
    [
        "const float* p = x; y[0] = p[0];",  # no address space
        "GLOBAL float* p = shared; p[0] = x[0];",  # another one
        "float* p = &shared[0]; y[0] = *p;",
        "uint32_t thread = 1; y[thread] = 0.0f;",  # a word of Metal's
    ],
)
def test_what_metal_refuses_is_noticed(tmp_path: Path, mutant: str) -> None:
    source = '#include "gpu/dialect.h"\nstruct Args { int n; };\n'
    source += "KERNEL(mutant, Args, READ(1, float, x), WRITE(2, float, y)) {\n"
    source += f"  SHARED(float, shared, 4);\n  shared[0] = x[0];\n  {mutant}\n}}\n"
    assert metal(tmp_path, source).returncode != 0
    clean = source.replace(mutant, "y[0] = shared[0];")
    assert metal(tmp_path, clean).returncode == 0


OP_EXT_INST, OP_FDIV = 12, 136
CONTRACTION_OFF, SUBGROUP_SIZE = 31, 35  # execution modes
SQRT = 61  # of OpenCL.std

needs_spirv = pytest.mark.skipif(
    shutil.which("clang-15") is None or shutil.which("llvm-spirv-15") is None,
    reason="needs clang-15 and llvm-spirv-15",
)


def spirv(csrc: Path = CSRC) -> bytes:
    return embed_kernels.compile_spirv("clang-15", "llvm-spirv-15", csrc)


def code_of(module: bytes) -> list[split_spirv.Words]:
    return list(split_spirv.instructions(split_spirv.array("I", module)))


def divisions(module: bytes) -> tuple[int, int]:
    """Return how often a module divides floats, and how often it takes a root."""
    code = code_of(module)
    roots = [c for c in code if split_spirv.opcode(c) == OP_EXT_INST and c[4] == SQRT]
    return sum(split_spirv.opcode(c) == OP_FDIV for c in code), len(roots)


@needs_spirv
@pytest.mark.slow
def test_opencl_divides_in_one_place_and_fuses_nothing(tmp_path: Path) -> None:
    whole = spirv()
    assert divisions(whole) == (1, 1)  # of gpu/rounded.h
    kernels = split_spirv.split(whole)
    assert {
        "probe",
        "rms_norm",
        "gemv_q1_1",
        "attend_part_F16",
        "conv2d",
        "top_k",
    } <= kernels.keys()
    for name, module in kernels.items():
        code = code_of(module)
        entries = [c for c in code if split_spirv.opcode(c) == split_spirv.OP_ENTRY_POINT]
        modes = [c for c in code if split_spirv.opcode(c) == split_spirv.OP_EXECUTION_MODE]
        assert len(entries) == 1, name
        assert {tuple(c[2:]) for c in modes} >= {(CONTRACTION_OFF,), (SUBGROUP_SIZE, 32)}, name
        if shutil.which("spirv-val") is not None:
            (tmp_path / "kernel.spv").write_bytes(module)
            checked = run("spirv-val", "--target-env", "spv1.3", tmp_path / "kernel.spv")
            assert checked.returncode == 0, f"{name}: {checked.stderr}"


@needs_spirv
@pytest.mark.slow
def test_another_division_is_noticed(tmp_path: Path) -> None:
    shutil.copytree(CSRC / "gpu", tmp_path / "gpu")
    shutil.copytree(CSRC / "opencl", tmp_path / "opencl")
    norm = tmp_path / "gpu" / "kernels" / "norm.h"
    text = norm.read_text()
    changed = text.replace("quotient(lanes[0], float(width))", "lanes[0] / float(width)")
    assert changed != text
    norm.write_text(changed)
    assert divisions(spirv(tmp_path)) == (2, 1)


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.name)
def test_kernels_use_nothing_that_a_compiler_lacks(path: Path) -> None:
    code = re.sub(r"//[^\n]*", "", path.read_text())
    for word in ("double", "std::", "auto", "virtual", "__shared__", "threadgroup", "printf"):
        assert not re.search(rf"(?<![\w]){re.escape(word)}", code), f"{path.name} has {word}"
    assert not re.search(r"\[[&=\w, ]*\]\s*\([^)]*\)\s*\{", code), f"{path.name} has a lambda"
