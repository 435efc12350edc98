"""Only a tier's own files may hold its instructions, so they share no inline function with anyone.

Reads the symbol tables of the builds under build/.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native_build import builds_locked
from oxibonsai import _core

ROOT = Path(__file__).resolve().parents[1]
# A tier of another processor family has no objects here.
TIERS = sorted(p.parent.name for p in ROOT.glob("csrc/cpu/*/tier.cc") if p.parent.name != "scalar")


def objects(tier: str) -> list[Path]:
    found = ROOT.glob(f"build/**/oxi_tier_{tier}.dir/**/*.o")
    # Sanitizers bring symbols of their own, and nobody ships them.
    return sorted(path for path in found if "sanitized" not in path.parts)


@pytest.mark.parametrize("tier", TIERS)
def test_tier_objects_define_nothing_that_others_could_link(tier: str) -> None:
    reader = "emnm" if tier == "simd128" else "nm"
    if shutil.which(reader) is None or not objects(tier):
        pytest.skip(f"no {reader}, or no build of this tier under build/")
    with builds_locked():
        for path in objects(tier):
            listing = subprocess.run(
                [reader, "--defined-only", "--demangle", str(path)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for line in listing.splitlines():
                _, kind, name = line.split(maxsplit=2)
                assert kind not in "WVuwv", f"{path.name}: {name} is weak"
                if kind == "T":
                    assert name.startswith(f"oxibonsai::cpu::{tier}::fill"), name


def test_the_highest_tier_that_the_processor_has_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists() or "flags" not in cpuinfo.read_text():
        pytest.skip("no x86 processor flags to compare with")
    flags = set(cpuinfo.read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    expected = ["scalar"]
    if {"avx2", "fma", "f16c"} <= flags:
        expected.append("avx2")
        if "avx_vnni" in flags and "avxvnni" in _core.cpu.tiers():  # compilers know it since gcc 11
            expected.append("avxvnni")
        if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
            expected.append("avx512")
            if "avx512_vnni" in flags:
                expected.append("avx512vnni")
    assert _core.cpu.tiers() == expected


@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_a_forced_tier_is_the_one_that_runs(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("OXIBONSAI_ISA", tier)
    code = "from oxibonsai import _core; print(_core.cpu.name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == tier
