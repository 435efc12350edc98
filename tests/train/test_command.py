"""``oxibonsai train``: what it writes, and how it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oxibonsai.cli import train as command
from oxibonsai.cli.main import main
from oxibonsai.errors import UnsupportedError
from oxibonsai.train import Sources


def oxibonsai(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    code = "from oxibonsai.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "train", *map(str, arguments)], capture_output=True, text=True
    )


def test_texts_become_a_model(sources: Sources, tmp_path: Path) -> None:
    assert sources.held_out is not None
    out = tmp_path / "sprout"
    done = oxibonsai(
        sources.texts, out, "--tokenizer", sources.tokenizer, "--held-out", sources.held_out,
        "--steps", "2", "--warmup", "1", "--batch", "2", "--context", "16", "--layers", "1",
        "--hidden-size", "128", "--heads", "1", "--kv-heads", "1", "--ffn-size", "128",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{out / 'sprout.gguf'}: " in done.stdout
    assert "held-out perplexity " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--steps", "0"], 2, "steps is 0"),
        (["--hidden-size", "100"], 2, "hidden_size is 100; q2_0_g64 needs a multiple"),
        (["--init", "missing"], 2, "missing is neither a checkpoint"),
        (["--type", "q8_0"], 2, "Invalid value for '--type'"),
        (["--distill", "0.5"], 2, "there is no teacher"),
    ],
)
def test_a_bad_argument_is_one_line_and_leaves_nothing(
    sources: Sources,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    out = tmp_path / "run"
    line = ["train", sources.texts, out, "--tokenizer", sources.tokenizer, *arguments]
    monkeypatch.setattr(sys, "argv", ["oxibonsai", *map(str, line)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not out.exists()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(UnsupportedError, match=r"needs torch: install with .*oxibonsai\[train\]"):
        command.require_extra()
