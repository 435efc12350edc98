"""bench/plot.py: which benchmarks become bars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib (extra `bench`) is not installed")

import plot

LIMITS = {1: "bandwidth", 512: "int8 multiplies"}


def benchmark(kernel: str, tier: str, rows: int, share: float) -> dict[str, Any]:
    info = {"kernel": kernel, "tier": tier, "rows": rows, "share": share, "limit": LIMITS[rows]}
    return {"name": "x", "stats": {"median": 0.1}, "extra_info": info}


def write(path: Path, *benchmarks: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"benchmarks": benchmarks}))
    return path


def test_a_picture_with_a_panel_per_limit(tmp_path: Path) -> None:
    results = write(
        tmp_path / "results.json",
        benchmark("Q1_0", "avx512vnni", 1, 0.81),
        benchmark("Q1_0", "avx2", 1, 0.5),
        benchmark("Q1_0", "avx512vnni", 512, 0.45),
    )
    out = tmp_path / "shares.png"
    assert plot.main([str(results), str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    panels = plot.draw(plot.read_bars([results])).axes
    titles = ["Share of the machine's bandwidth", "Share of the machine's int8 multiplies"]
    assert [p.get_title() for p in panels] == titles
    assert [b.get_width() for b in panels[0].patches] == pytest.approx([81, 50])
    assert [t.get_text() for t in panels[1].get_yticklabels()] == ["Q1_0, 512 rows"]


def test_the_last_of_several_files_counts(tmp_path: Path) -> None:
    old = write(tmp_path / "old.json", benchmark("Q1_0", "avx2", 1, 0.5))
    new = write(tmp_path / "new.json", benchmark("Q1_0", "avx2", 1, 0.6))
    assert [b.share for b in plot.read_bars([old, new])] == [0.6]


def test_benchmarks_without_a_share_are_passed_over(tmp_path: Path) -> None:
    other = {"name": "y", "stats": {"median": 0.1}, "extra_info": {}}
    results = write(tmp_path / "results.json", other, benchmark("Q1_0", "avx2", 1, 0.5))
    assert len(plot.read_bars([results])) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no result of pytest-benchmark"),
        ("[]", "is no result of pytest-benchmark"),
        ('{"benchmarks": [{"extra_info": {"share": 1}}]}', "KeyError: 'kernel'"),
        ('{"benchmarks": []}', "has a share in its extra_info"),
    ],
)
def test_what_has_no_shares_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    assert plot.main([str(bad), str(tmp_path / "out.png")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()
