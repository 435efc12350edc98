"""Builds the native tests and runs them with ctest; also under sanitizers, for Arm under qemu, as
WebAssembly under node, and for Windows under wine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from native_build import (
    ROOT,
    build,
    build_wasm,
    build_windows,
    needs_compiler,
    wine_environment,
)
from oxibonsai import _core

# Runs kernels of GPUs beside the scalar tier, whatever tier the processor has.
GPU_TESTS = "^test_gpu"


def ctest(folder: Path, names: str = ".", *, but: str = "^$", **environment: str) -> None:
    done = subprocess.run(
        [
            *("ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error"),
            *("-R", names, "-E", but, f"-j{os.cpu_count() or 1}"),
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.long("compiles all native code")
@needs_compiler
def test_native_tests_pass() -> None:
    ctest(build("native"))


# Several processes of pytest share a build: what one links anew, another may be starting.
@pytest.mark.long("waits for the build of all native code")
@needs_compiler
def test_a_second_build_leaves_programs_alone() -> None:
    program = build("native") / "tests" / "native" / "test_math"
    before = program.stat().st_mtime_ns
    build("native")
    assert program.stat().st_mtime_ns == before


# The tests compare every tier with the scalar one already; here each is also the one chosen.
@pytest.mark.release
@pytest.mark.long("runs all native tests")
@needs_compiler
@pytest.mark.timeout(2400)  # builds of other processes go first
@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_native_tests_pass_with_each_tier_forced(tier: str) -> None:
    ctest(build("native"), but=GPU_TESTS, OXIBONSAI_ISA=tier)


@pytest.mark.long("compiles all native code with sanitizers")
@needs_compiler
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "but",
    [
        pytest.param(GPU_TESTS, id="cpu", marks=pytest.mark.slow),
        pytest.param("^$", id="all", marks=pytest.mark.release),
    ],
)
def test_native_tests_pass_under_sanitizers(but: str) -> None:
    folder = build("sanitized", "-DOXIBONSAI_SANITIZE=address,undefined", "-DOXIBONSAI_FUZZERS=ON")
    ctest(folder, but=but)


@pytest.mark.slow
@pytest.mark.long("compiles all native code for Arm, and runs it under an emulator")
@needs_compiler
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("processor", "names"),
    # "max" has dot products, and its tests compare the tier without them too.
    [
        pytest.param("max", ".", id="all tiers"),
        pytest.param("cortex-a72", "linear", id="without dot products"),
        pytest.param("cortex-a72", ".", id="old processor", marks=pytest.mark.release),
    ],
)
def test_the_neon_tiers_give_the_bytes_of_scalar(processor: str, names: str) -> None:
    if shutil.which("aarch64-linux-gnu-g++") is None or shutil.which("qemu-aarch64-static") is None:
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user-static")
    toolchain = ROOT / "cmake" / "aarch64-linux-gnu.cmake"
    ctest(
        build("arm", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"),
        names,
        but=GPU_TESTS,
        QEMU_CPU=processor,
    )


@pytest.mark.release
@pytest.mark.long("compiles the core to WebAssembly, and runs its tests under node")
@needs_compiler
@pytest.mark.timeout(2400)
def test_webassembly_gives_the_bytes_of_scalar() -> None:
    # It has the caller's thread alone.
    ctest(build_wasm(), but="active_threads|staged_work")


@pytest.mark.release
@pytest.mark.long("compiles the core for Windows, and runs its tests under wine")
@needs_compiler
@pytest.mark.timeout(2400)
def test_windows_gives_the_bytes_of_scalar() -> None:
    _, environment = wine_environment()
    ctest(build_windows(), **environment)
