"""split, merge and convert on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from forked import run_oxibonsai


def test_a_model_is_split_and_merged(tiny_path: Path, tmp_path: Path) -> None:
    done = run_oxibonsai("split", tiny_path, tmp_path / "m.gguf", "--max-size", "20K")
    assert done.returncode == 0, done.stderr
    shards = sorted(tmp_path.glob("m-*.gguf"))
    assert len(shards) > 2
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [str(s) for s in shards]
    facts = json.loads(run_oxibonsai("info", "--json", "-m", shards[1]).stdout)
    assert facts["tensors"] == 24
    assert run_oxibonsai("verify", "-m", shards[2]).returncode == 0
    assert run_oxibonsai("merge", shards[1], tmp_path / "one.gguf").returncode == 0
    assert run_oxibonsai("merge", *shards, tmp_path / "all.gguf").returncode == 0
    for name in ("one", "all"):
        assert (tmp_path / f"{name}.gguf").read_bytes() == tiny_path.read_bytes()
    shards[1].unlink()
    done = run_oxibonsai("merge", shards[0], tmp_path / "x.gguf")
    assert done.returncode == 3
    assert shards[1].name in done.stderr


def test_wrong_usage_is_said(tiny_path: Path, tmp_path: Path) -> None:
    for options in ([], ["--max-size", "2X"], ["--max-size", "0"], ["--max-tensors", "0"],
                    ["--max-size", "1G", "--max-tensors", "1"]):  # fmt: skip
        done = run_oxibonsai("split", tiny_path, tmp_path / "m", *options)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_types_are_named_in_any_case(tmp_path: Path) -> None:
    done = run_oxibonsai("convert", tmp_path, tmp_path / "m.gguf", "--type", "PQ2_0")
    assert done.returncode == 3
    assert "has no config.json" in done.stderr
