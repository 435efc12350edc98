"""--lora and --lora-scaled of the commands that write texts."""

from __future__ import annotations

import json
from pathlib import Path

import adapters
from forked import run_oxibonsai

GREEDY = ("--raw", "--temp", "0", "-n", "12", "--ignore-eos", "--json", "ab")


def test_texts_are_those_of_the_adapted_model(tiny_path: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "a.gguf"
    adapters.write(adapter, adapters.tensors_of(adapters.random_pairs()))

    def tokens(*options: str | Path) -> list[int]:
        done = run_oxibonsai("run", "-m", tiny_path, *options, *GREEDY)
        assert done.returncode == 0, done.stderr
        found: list[int] = json.loads(done.stdout)["tokens"]
        return found

    plain, adapted = tokens(), tokens("--lora", adapter)
    assert plain != adapted
    assert tokens("--lora-scaled", f"{adapter}:1") == adapted
    assert tokens("--lora-scaled", f"{adapter}:0") == plain
    halves = tokens("--lora-scaled", f"{adapter}:0.5", "--lora-scaled", f"{adapter}:-0.5")
    assert halves == plain


def test_wrong_usage_and_wrong_files_have_their_exit_codes(tiny_path: Path) -> None:
    for scaled in ("a.gguf", "a.gguf:x", "a.gguf:nan"):
        done = run_oxibonsai("run", "-m", tiny_path, "--lora-scaled", scaled, *GREEDY)
        assert done.returncode == 2
        assert "a.gguf" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    done = run_oxibonsai("run", "-m", tiny_path, "--lora", tiny_path, *GREEDY)
    assert done.returncode == 3
    assert "it is no adapter" in done.stderr
