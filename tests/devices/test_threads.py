"""Threads: as many by default as affinity and quotas of cgroups allow; and their end in a fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oxibonsai import _core
from oxibonsai.devices.threads import default_threads, quotas
from oxibonsai.errors import RequestError, UnsupportedError

# Uses its parent's threads, makes its own and ends them; an alarm ends it where it waits for ever.
CHILD = """
import os, signal
from oxibonsai import _core
used, unused = _core.ThreadPool(2), _core.ThreadPool(2)
for pool in (used, unused):
    pool.read_bandwidth(16 << 20, 1)
child = os.fork()
if child == 0:
    signal.alarm(60)
    for _ in range(5):
        used.read_bandwidth(16 << 20, 1)
    del pool, used, unused
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("200000 100000\n", [2]),
        ("150000 100000\n", [2]),
        ("20000 100000\n", [1]),
        ("max 100000\n", []),
        ("\n", []),
    ],
)
def test_a_containers_quota_is_that_of_the_root_it_sees(
    tmp_path: Path, text: str, cores: list[int]
) -> None:
    (tmp_path / "membership").write_text("0::/\n")
    group(tmp_path / "mounted", cpu__max=text)
    assert list(quotas(tmp_path / "membership", tmp_path / "mounted")) == cores


def test_a_services_quota_is_its_own_and_those_of_the_slices_above(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/system.slice/oxibonsai.service\n")
    group(tmp_path / "system.slice", cpu__max="800000 100000")
    group(tmp_path / "system.slice" / "oxibonsai.service", cpu__max="400000 100000")
    group(tmp_path / "system.slice" / "other.service", cpu__max="100000 100000")
    assert list(quotas(tmp_path / "membership", tmp_path)) == [4, 8]


def test_quotas_of_version_1_count(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("5:memory:/a\n3:cpu,cpuacct:/a/b\n2:cpuset:/\n0::/\n")
    group(tmp_path / "cpu" / "a", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    group(tmp_path / "cpu/a/b", cpu__cfs_quota_us="250000\n", cpu__cfs_period_us="100000\n")
    assert list(quotas(tmp_path / "membership", tmp_path)) == [3]


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert list(quotas(tmp_path / "membership", tmp_path)) == []


def test_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_THREADS", "7")
    assert default_threads() == 7
    monkeypatch.setenv("OXIBONSAI_THREADS", "many")
    with pytest.raises(RequestError, match="OXIBONSAI_THREADS is 'many'"):
        default_threads()


def test_a_fork_has_threads_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "7\n", done.stderr


@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_the_peaks_of_a_tier_can_be_measured(tier: str) -> None:
    pool = _core.ThreadPool(1)
    assert pool.fma_peak(tier, 1) > 0
    if tier == "scalar":
        with pytest.raises(UnsupportedError, match="no dot product of bytes"):
            pool.int8_peak(tier, 1)
    else:
        assert pool.int8_peak(tier, 1) > 0
