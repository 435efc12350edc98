"""Zig compiles what GCC's flags say: no contraction, no traps, each tier's instructions."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

build_wheels = pytest.importorskip(
    "build_wheels", reason="packaging/requirements.txt", exc_type=ImportError
)

pytestmark = pytest.mark.slow

SOURCE = """
extern "C" float f(float a, float b, float c) { return a * b + c; }
extern "C" int g(int a) { return a + 1; }
"""
# Instructions by which Clang multiplies and adds with one rounding, and traps.
FUSED = {"x86_64": "vfmadd", "aarch64": "fmadd"}
LINUX = [name for name, p in build_wheels.PLATFORMS.items() if p.system == "Linux"]


def assembly(name: str, folder: Path, *flags: str) -> str:
    """What the compiler of a platform makes of the source with the flags of the build."""
    build_wheels.write_tools(folder / "tools", build_wheels.PLATFORMS[name].target)
    source, output = folder / "f.cc", folder / "f.s"
    source.write_text(SOURCE)
    command = [folder / "tools" / "c++", *build_wheels.FLAGS.split(), *flags]
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
    subprocess.run([*command, "-S", source, "-o", output], check=True, env=os.environ | cache)
    return output.read_text()


def tier_flags(name: str) -> list[str]:
    x86 = build_wheels.PLATFORMS[name].processor == "x86_64"
    return ["-mavx2", "-mfma"] if x86 else ["-march=armv8.2-a+dotprod"]


@pytest.mark.parametrize("name", LINUX)
def test_a_product_and_a_sum_are_two_roundings(name: str, tmp_path: Path) -> None:
    fused = FUSED[build_wheels.PLATFORMS[name].processor]
    assert fused not in assembly(name, tmp_path, *tier_flags(name), "-ffp-contract=off")
    assert fused in assembly(name, tmp_path, *tier_flags(name), "-ffp-contract=fast")


@pytest.mark.parametrize("name", LINUX)
def test_an_overflow_is_no_trap(name: str, tmp_path: Path) -> None:
    text = assembly(name, tmp_path)
    assert "ubsan" not in text
    assert not [trap for trap in ("ud1", "ud2", "brk") if trap in text]


def test_a_wheel_without_a_tiers_flags_runs_on_any_processor(tmp_path: Path) -> None:
    assert "vmulss" not in assembly("manylinux_2_28_x86_64", tmp_path)
    assert "vmulss" in assembly("manylinux_2_28_x86_64", tmp_path, "-mavx2")


def test_the_level_of_optimization_reaches_clang(tmp_path: Path) -> None:
    build_wheels.write_tools(tmp_path, "x86_64-linux-gnu.2.28")
    line = [tmp_path / "c++", "-O3", "-O1", "-###", "-c", "-x", "c++", "/dev/null"]
    done = subprocess.run(line, capture_output=True, text=True)
    levels = re.findall(r'"(-O\d)"', done.stderr)
    assert levels[-1] == "-O1", done.stderr
