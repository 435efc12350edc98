"""bench/speculation.py: runs on the models that the package brings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import speculation


def test_the_packaged_models_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.json"
    monkeypatch.setattr(speculation, "LENGTHS", (2,))
    monkeypatch.setattr(speculation, "THRESHOLDS", (0.7,))
    options = ["--model", "seedling-ternary", "--draft-model", "seedling-1bit"]
    options += ["--tokens", "8", "--rounds", "1", "--json", str(out)]
    monkeypatch.setattr("sys.argv", ["speculation.py", *options])
    speculation.main()
    results = json.loads(out.read_text())
    kinds = [(r["prompt"], r["kind"], r["length"]) for r in results]
    assert kinds == [
        (p, k, n) for p in ("free", "copy") for n in (None, 2) for k in ("ngram", "draft")
    ]
    assert all(r["speed"] > 0 and 0 <= r["accepted"] <= 1 for r in results)
    assert len(capsys.readouterr().out.splitlines()) == len(results)
