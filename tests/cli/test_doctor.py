"""``oxibonsai doctor`` says what the machine says of itself, and what to do about it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from forked import run_oxibonsai
from oxibonsai.cli import doctor
from oxibonsai.devices import DeviceInfo


def report(**environment: str) -> dict[str, Any]:
    done = run_oxibonsai("doctor", "--json", **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return report(OXIBONSAI_THREADS="3", OXIBONSAI_ISA="scalar")


def test_threads_and_tier_are_those_that_run(whole: dict[str, Any]) -> None:
    assert (whole["threads"], whole["tier"]) == (3, "scalar")
    assert whole["tiers"][0] == "scalar"


def test_the_memory_is_what_the_kernel_says(whole: dict[str, Any]) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal"))
    assert whole["memory_bytes"] == total * 1024
    assert whole["bandwidth_bytes_per_s"] > 0


def test_a_forced_slow_tier_is_advised_against(whole: dict[str, Any]) -> None:
    if whole["tiers"] == ["scalar"]:
        pytest.skip("this processor has no faster tier")
    assert any("OXIBONSAI_ISA keeps the tier at scalar" in a for a in whole["advice"])


def test_each_device_that_is_not_used_has_a_reason(whole: dict[str, Any]) -> None:
    assert {d["name"].partition(":")[0] for d in whole["devices"]} == {"cuda", "metal", "opencl"}
    assert all(d["usable"] or d["reason"] for d in whole["devices"])


def test_folders_are_the_chosen_ones(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = report(
        OXIBONSAI_CACHE=str(tmp_path / "file" / "cache"),
        OXIBONSAI_STATE_DIR=str(tmp_path / "state"),
    )
    cache, state = found["folders"]["cache"], found["folders"]["state"]
    assert state["path"] == str(tmp_path / "state")
    assert state["writable"]
    assert 0 < state["free_bytes"] <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert cache == {
        **cache,
        "writable": False,
        "reason": f"{tmp_path / 'file'} can't be written to",
    }
    (sentence,) = [a for a in found["advice"] if "cache folder" in a]
    assert "set OXIBONSAI_CACHE" in sentence


@pytest.mark.parametrize("text", ["", "flags\t\t: fma\n"])
def test_a_processor_without_a_name_is_of_some_kind(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    assert doctor.processor_name(file)
    file.write_text(text + "model name\t: A chip: fast\n")
    assert doctor.processor_name(file) == "A chip: fast"


def test_a_card_whose_driver_is_loaded_but_unusable_is_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_NVIDIA", tmp_path)
    disk = {"writable": True, "free_bytes": 1 << 40, "reason": ""}
    facts = {"tier": "avx2", "tiers": ["scalar", "avx2"], "memory_bytes": 1 << 40}
    cuda = DeviceInfo("cuda", "", False, "no NVRTC", None, None)
    metal = DeviceInfo("metal", "", False, "not Apple's", None, None)
    (sentence,) = doctor.advice({**facts, "folders": {"cache": disk, "state": disk}}, [cuda, metal])
    assert "cuda can't be used (no NVRTC)" in sentence
