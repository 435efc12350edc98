"""bench/compare.py: which results it reads, and when it calls one slower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import compare


def write(path: Path, report: Any) -> Path:
    path.write_text(json.dumps(report))
    return path


def rates(**medians: float) -> dict[str, Any]:
    """What `oxibonsai bench --json` writes."""
    return {"rows": [{"test": t, "tok_s": 0.0, "median": m} for t, m in medians.items()]}


def beside_llama_cpp(**medians: float) -> dict[str, Any]:
    """What compare_llama_cpp.py writes."""
    peer = {"median": 1.0}
    return {
        "rows": [
            {"test": t, "oxibonsai": {"median": m}, "llama_cpp": peer} for t, m in medians.items()
        ]
    }


def seconds(**medians: float) -> dict[str, Any]:
    """What pytest-benchmark writes."""
    return {"benchmarks": [{"fullname": n, "stats": {"median": m}} for n, m in medians.items()]}


@pytest.mark.parametrize("kind", [rates, beside_llama_cpp])
def test_fewer_tokens_per_second_are_slower(
    kind: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "old.json", kind(pp512=1000.0, tg128=100.0))
    new = write(tmp_path / "new.json", kind(pp512=2000.0, tg128=90.0))
    assert compare.main([str(old), str(new)]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| pp512 | 1000 tok/s | 2000 tok/s | 2.000 |  |",
        "| tg128 | 100 tok/s | 90 tok/s | 0.900 | slower |",
    ]


def test_more_seconds_are_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.json", seconds(a=0.5, b=0.5))
    new = write(tmp_path / "new.json", seconds(a=1.0, b=0.25))
    assert compare.main([str(old), str(new)]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| a | 0.5 s | 1 s | 0.500 | slower |",
        "| b | 0.5 s | 0.25 s | 2.000 |  |",
    ]


def test_a_rate_of_ours_compares_across_the_two_kinds_of_rates(tmp_path: Path) -> None:
    alone = write(tmp_path / "alone.json", rates(tg128=100.0))
    beside = write(tmp_path / "beside.json", beside_llama_cpp(tg128=100.0))
    assert compare.main([str(alone), str(beside)]) == 0


@pytest.mark.parametrize(
    ("median", "tolerance", "status"), [(96, "5", 0), (94, "5", 1), (94, "10", 0), (99, "0", 1)]
)
def test_the_tolerance_is_in_percent(
    median: float, tolerance: str, status: int, tmp_path: Path
) -> None:
    old = write(tmp_path / "old.json", rates(tg128=100.0))
    new = write(tmp_path / "new.json", rates(tg128=median))
    assert compare.main([str(old), str(new), "--tolerance", tolerance]) == status


def test_benchmarks_of_one_result_only_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "old.json", rates(tg128=100.0, gone=1.0))
    new = write(tmp_path / "new.json", rates(tg128=100.0, fresh=1.0))
    assert compare.main([str(old), str(new)]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "only in the old result: gone",
        "only in the new result: fresh",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON of oxibonsai bench"),
        ("[]", "is no JSON of oxibonsai bench"),
        ("3", "is no JSON of oxibonsai bench"),
        ("{}", "KeyError: 'rows'"),
        ('{"rows": [{"test": "pp512"}]}', "KeyError: 'median'"),
        ('{"rows": [{"test": "pp512", "median": "fast"}]}', "ValueError"),
        ('{"rows": [{"test": "pp512", "median": 0}]}', "the median of pp512 is 0.0"),
        ('{"rows": [{"test": "pp512", "median": NaN}]}', "the median of pp512 is nan"),
        ('{"rows": [{"test": "pp512", "median": 1}]}', "no benchmark in common"),
    ],
)
def test_what_is_no_result_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path / "good.json", rates(tg128=100.0))
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    assert compare.main([str(good), str(bad)]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.json")
    assert compare.main([missing, missing]) == 2
    assert "missing.json: No such file" in capsys.readouterr().err
