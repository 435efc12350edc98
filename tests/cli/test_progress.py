"""Progress on stderr: a bar on a terminal, whole lines elsewhere, nothing for what is done soon."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from forked import run_oxibonsai
from oxibonsai.files import step_progress as module
from oxibonsai.files.step_progress import step_progress

LONG_PROMPT = "ab " * 150


# A bar is shown from the first step, however fast the machine is.
AT_ONCE = [
    sys.executable,
    "-c",
    "from oxibonsai.cli.main import main\n"
    "from oxibonsai.files import step_progress\n"
    "step_progress._SECONDS_BEFORE_BAR = 0.0\n"
    "main()",
]


def on_a_terminal(*arguments: str) -> str:
    """What a command shows where stderr is a terminal."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [*AT_ONCE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # The command has ended.
        pass
    os.close(ours)
    assert command.wait() == 0, shown.decode()
    return shown.decode()


def test_elsewhere_it_is_whole_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    with step_progress("Reading the prompt", "tokens") as progress:
        progress(512, 2048, "")
        progress(1024, 2048, "fast")
    assert capsys.readouterr().err == (
        "Reading the prompt: 512 of 2,048 tokens\nReading the prompt: 1,024 of 2,048 tokens, fast\n"
    )


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with step_progress("Reading the prompt", "tokens") as progress:
        for done in range(100):
            progress(done, 100, "")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "-n", "4", LONG_PROMPT),
        ("bench", "-p", "16", "-n", "4", "-r", "2"),
        ("perplexity", "-c", "32", "-f", "text.txt"),
    ],
    ids=["run", "bench", "perplexity"],
)
def test_no_carriage_return_reaches_a_file(
    tiny_path: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "text.txt").write_text("ab " * 200)
    command, *others = arguments
    done = run_oxibonsai(command, "-m", tiny_path, *others, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout + done.stderr


def test_bench_shows_its_rounds_on_a_terminal(tiny_path: Path) -> None:
    shown = on_a_terminal("bench", "-m", str(tiny_path), "-p", "16", "-n", "4", "-r", "3")
    assert "Measuring" in shown
    assert "of 3 rounds" in shown
    assert "tg4" in shown
