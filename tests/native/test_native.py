"""Builds the native tests and runs them with ctest; also under sanitizers, and for Arm under qemu."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_model
from oxibonsai import _core

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"

# Builds share folders, so they take turns.
pytestmark = pytest.mark.xdist_group("native builds")

needs_compiler = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("ninja") is None or shutil.which("g++") is None,
    reason="native tests need cmake, ninja and g++",
)


def build(name: str, *options: str) -> Path:
    folder = BUILD / name
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DOXIBONSAI_PYTHON=OFF"]
    command.append(f"-DPython_EXECUTABLE={sys.executable}")
    if shutil.which("ccache"):
        command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    subprocess.run([*command, "-DOXIBONSAI_TESTS=ON", *options], check=True, capture_output=True)
    done = subprocess.run(["cmake", "--build", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    return folder


def ctest(folder: Path, **environment: str) -> None:
    done = subprocess.run(
        [
            *("ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error"),
            f"-j{os.cpu_count() or 1}",
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]


@needs_compiler
def test_native_tests_pass() -> None:
    ctest(build("native"))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_native_tests_pass_with_each_tier_forced(tier: str) -> None:
    ctest(build("native"), OXIBONSAI_ISA=tier)


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(2400)
def test_native_tests_and_fuzzed_files_pass_under_sanitizers(tmp_path: Path) -> None:
    folder = build("sanitized", "-DOXIBONSAI_SANITIZE=address,undefined", "-DOXIBONSAI_FUZZERS=ON")
    ctest(folder)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    tiny_model.write(corpus / "tiny.gguf")
    tiny_model.write(corpus / "vocabulary.gguf", tensors=dict.fromkeys(tiny_model._shapes()))
    done = subprocess.run(
        [str(folder / "tests/native/fuzz_gguf"), "3000", "1", *map(str, sorted(corpus.iterdir()))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("processor", ["max", "cortex-a72"])  # with and without dot products
def test_the_neon_tier_gives_the_bytes_of_scalar(processor: str) -> None:
    if shutil.which("aarch64-linux-gnu-g++") is None or shutil.which("qemu-aarch64-static") is None:
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user-static")
    toolchain = ROOT / "cmake" / "aarch64-linux-gnu.cmake"
    ctest(build("arm", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"), QEMU_CPU=processor)
