"""bench/busy.py: which processes run beside a measurement, and its table. The speeds are not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import busy as tool

SCRIPT = str(Path(tool.__file__))


def children() -> set[int]:
    """Processes that this one has started, those that nobody has waited for among them."""
    return {
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if _parent(stat) == os.getpid()
    }


def _parent(stat: Path) -> int | None:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_busy_processes_run_for_as_long_as_the_block() -> None:
    before = children()
    with tool.busy_processes(2):
        assert len(children() - before) == 2
    assert children() == before
    with pytest.raises(ValueError, match="inside"), tool.busy_processes(1):
        raise ValueError("inside")
    assert children() == before


def row(busy: int, engine: str, threads: int, median: float) -> dict[str, Any]:
    rate = {"median": median, "min": median - 1, "max": median + 1}
    return {"busy": busy, "engine": engine, "threads": threads, **rate}


def test_the_table_has_a_line_for_each_number_of_busy_processes() -> None:
    rows = [row(0, "oxibonsai", 2, 9), row(0, "oxibonsai", 1, 8), row(2, "oxibonsai", 2, 7)]
    rows.append(row(2, "oxibonsai", 1, 6))
    assert tool.table(rows).splitlines() == [
        "| busy | oxibonsai, 2 threads | oxibonsai, 1 thread |",
        "| --- | --- | --- |",
        "| 0 | 9.0 (8.0 to 10.0) | 8.0 (7.0 to 9.0) |",
        "| 2 | 7.0 (6.0 to 8.0) | 6.0 (5.0 to 7.0) |",
    ]


@pytest.mark.parametrize("wrong", [["-n", "0"], ["-r", "0"], ["-t", "0"], ["--busy", "1,x"]])
def test_options_out_of_range_are_wrong_usage(wrong: list[str], tiny_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool.parse_options([str(tiny_path), *wrong])


@pytest.mark.slow
def test_a_measurement_from_start_to_end(tiny_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "busy.json"
    options = ["-n", "4", "-r", "1", "-t", "2", "--busy", "0,1", "--no-peer", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, SCRIPT, str(tiny_path), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert done.stdout.strip() == tool.table(report["rows"])
    assert [(r["busy"], r["threads"]) for r in report["rows"]] == [(0, 2), (0, 1), (1, 2), (1, 1)]
    assert all(r["min"] > 0 for r in report["rows"])
