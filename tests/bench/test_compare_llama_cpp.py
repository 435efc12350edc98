"""bench/compare_llama_cpp.py: turns, workers and what the report says. The speeds are not judged."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import compare_llama_cpp as tool
import comparison_report
from rounds import Rounds, Turn
from worker import Worker, WorkerError

SCRIPT = str(Path(tool.__file__))
WORKER_MODULE = Path(tool.__file__).with_name("worker.py")

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from worker import serve

class Counter:
    def __init__(self, start):
        if start < 0:
            raise ValueError("start is negative")
        self.value = start
    def add(self, more):
        print("noise on standard output")
        self.value += more
        return self.value
    def die(self):
        sys.exit(7)

serve(Counter)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "counter.py"
    script.write_text(WORKER)
    return [sys.executable, str(script), str(WORKER_MODULE.parent)]


def test_a_worker_keeps_its_object_between_requests(command: list[str]) -> None:
    with Worker("counter", command) as worker:
        worker.ask("make", start=1)
        assert worker.ask("add", more=2) == 3
        assert worker.ask("add", more=2) == 5
        assert worker.waits == 3


def test_a_worker_survives_an_error_and_reports_it(command: list[str]) -> None:
    with Worker("counter", command) as worker:
        with pytest.raises(WorkerError, match=r"^counter: ValueError: start is negative$"):
            worker.ask("make", start=-1)
        worker.ask("make", start=1)
        assert worker.ask("add", more=1) == 2


def test_the_end_of_a_worker_is_an_error_not_a_hang(command: list[str]) -> None:
    with Worker("counter", command) as worker:
        worker.ask("make", start=1)
        for _ in range(2):
            with pytest.raises(WorkerError, match="counter: the worker ended with status 7"):
                worker.ask("die")


def test_a_worker_that_is_not_there_is_named() -> None:
    with pytest.raises(WorkerError, match="can't start no-such-python"):
        Worker("peer", ["no-such-python"])


def test_a_row_holds_medians_and_the_spread_of_rounds() -> None:
    row = tool.compare_rates("tg8", [10.0, 40.0, 20.0], [10.0, 10.0, 5.0])
    assert row["oxibonsai"] == {"median": 20.0, "min": 10.0, "max": 40.0}
    assert row["llama_cpp"] == {"median": 10.0, "min": 5.0, "max": 10.0}
    assert row["ratio"] == {"median": 4.0, "min": 1.0, "max": 4.0}


def rounds(*values: tuple[float, float, float]) -> Rounds:
    names = ("oxibonsai", "llama.cpp", "bandwidth")
    columns = zip(*values, strict=True)
    turns = ([Turn(v, stolen=0.0, tries=1) for v in column] for column in columns)
    return Rounds(dict(zip(names, turns, strict=True)))


def test_a_share_is_of_the_bandwidth_in_the_same_round() -> None:
    # The memory got twice as fast, and both engines with it.
    measured = rounds((10.0, 5.0, 4000.0), (20.0, 10.0, 8000.0), (20.0, 10.0, 8000.0))
    row = tool.shares_of_bandwidth(measured, ["oxibonsai", "llama.cpp"], bytes_per_token=100)
    assert row == {
        "weight_bytes_per_token": 100,
        "share_of_bandwidth": 0.25,
        "llama_cpp_share_of_bandwidth": 0.125,
    }


def test_no_share_for_a_file_whose_bytes_are_not_known() -> None:
    row = tool.shares_of_bandwidth(rounds((10.0, 5.0, 4000.0)), ["oxibonsai"], bytes_per_token=100)
    assert "llama_cpp_share_of_bandwidth" not in row


def report() -> dict[str, Any]:
    row = tool.compare_rates("tg8", [20.0], [10.0])
    row |= {"weight_bytes_per_token": 100, "share_of_bandwidth": 0.25}
    row |= {"turns_repeated": 3, "most_stolen": 0.01}
    engine = {
        "version": "1.2",
        "kv_type": "f16",
        "peak_bytes": 3_000_000,
        "idle_cpu_ms_per_wait": 9,
    }
    return {
        "command": "python bench/compare_llama_cpp.py a.gguf",
        "model": "a.gguf",
        "peer_model": "a.gguf",
        "machine": {"cpu": "Some CPU", "system": "Linux", "threads": 2, "tier": "avx2"},
        "read_gb_s": {"median": 21.96, "min": 20.0, "max": 23.0},
        "repetitions": 5,
        "oxibonsai": engine,
        "llama_cpp": {**engine, "system_info": "CPU : AVX2 = 1"},
        "rows": [row],
    }


def test_a_report_is_named_after_model_and_tier(tmp_path: Path) -> None:
    text = comparison_report.write_report(report(), tmp_path / "new")
    assert (tmp_path / "new" / "a-avx2.md").read_text() == text
    assert json.loads((tmp_path / "new" / "a-avx2.json").read_text()) == report()


def test_the_table_of_a_report() -> None:
    text = comparison_report.markdown(report())
    assert "Some CPU, Linux, 2 threads; memory reads 22.0 (20.0 to 23.0) GB/s" in text
    assert "are taken again: 3 were; from those that count it took at most 1%." in text
    assert "llama-cpp-python 1.2: f16 keys and values, 3 MB at its peak" in text
    row = "| tg8 | 20.0 (20.0 to 20.0) | 10.0 (10.0 to 10.0) | 2.00 (2.00 to 2.00) | 25% |  |"
    assert text.splitlines()[-1] == row


def test_a_report_says_when_the_files_differ() -> None:
    text = comparison_report.markdown(report() | {"peer_model": "b.gguf"})
    assert "llama-cpp-python 1.2 on b.gguf, the same weights: f16" in text


def test_the_recorded_command_has_names_but_no_paths(tiny_path: Path, tmp_path: Path) -> None:
    peer = tmp_path / "peer.gguf"
    peer.write_bytes(tiny_path.read_bytes())
    given = [str(tiny_path), "-p", "8", "-n", "4", "-r", "2", "-t", "1", "--out", str(tmp_path)]
    line = tool.command_line(tool.parse_options([*given, "--peer-model", str(peer)]))
    assert line == (
        "python bench/compare_llama_cpp.py tiny.gguf -p 8 -n 4 -r 2 -t 1 --peer-model peer.gguf"
    )


def test_a_depth_is_in_the_command_and_in_the_name_of_the_test(tiny_path: Path) -> None:
    given = [str(tiny_path), "-p", "0", "-n", "4", "-d", "40", "-r", "2", "-t", "1"]
    options = tool.parse_options(given)
    assert tool.generation_test(options) == "tg4 @ d40"
    line = "python bench/compare_llama_cpp.py tiny.gguf -p 0 -n 4 -d 40 -r 2 -t 1"
    assert tool.command_line(options) == line


@pytest.mark.parametrize(
    "wrong", [["-p", "0", "-n", "0"], ["-p", "-1"], ["-d", "0"], ["-r", "0"], ["-t", "0"]]
)
def test_numbers_out_of_range_are_wrong_usage(wrong: list[str], tiny_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool.parse_options([str(tiny_path), *wrong])


def run(tiny_path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    options = ["-p", "16", "-n", "4", "-r", "2", "-t", "2", "--out", str(out)]
    command = [sys.executable, SCRIPT, str(tiny_path), *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_comparison_from_start_to_end(tiny_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra `peers`) is not installed")
    done = run(tiny_path, tmp_path)
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob("tiny-*.json")
    assert written.with_suffix(".md").read_text() + "\n" == done.stdout
    result = json.loads(written.read_text())
    assert [row["test"] for row in result["rows"]] == ["pp16", "tg4"]
    for row in result["rows"]:
        assert row["oxibonsai"]["min"] > 0
        assert row["llama_cpp"]["min"] > 0
    assert str(tiny_path.parent) not in json.dumps(result)


def test_a_python_without_llama_cpp_is_told_what_to_install(
    tiny_path: Path, tmp_path: Path
) -> None:
    if importlib.util.find_spec("llama_cpp"):
        pytest.skip("llama-cpp-python is installed")
    done = run(tiny_path, tmp_path)
    assert done.returncode == 1
    assert "has no llama_cpp: pip install 'oxibonsai[peers]'" in done.stderr
    assert not list(tmp_path.iterdir())
