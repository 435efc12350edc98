"""``oxibonsai imatrix``: the file that it writes, also when it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import tiny_model
from forked import run_oxibonsai
from oxibonsai.imatrix import read_imatrix

COMMAND = [sys.executable, "-c", "from oxibonsai.cli.main import main; main()", "imatrix"]
TEXT = Path(__file__).resolve().parents[2] / "LICENSE"


def test_the_file_says_what_it_comes_from(tiny_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    done = run_oxibonsai("imatrix", tiny_path, "-f", TEXT, "-o", out, "-c", "64", "--chunks", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}: 14 weights, 3 windows of 64 tokens\n"
    found = read_imatrix(out)
    assert (found.datasets, found.chunk_count, found.chunk_size) == (("LICENSE",), 3, 64)
    assert found.entries["blk.0.attn_q.weight"].counts.tolist() == [192]
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_the_model_may_be_an_option_as_llama_imatrix_has_it(
    tiny_path: Path, tmp_path: Path
) -> None:
    arguments = ["-f", TEXT, "-c", "64", "--chunks", "1"]
    outs = []
    for named in ([tiny_path], ["-m", tiny_path]):
        outs.append(tmp_path / f"{len(named)}.gguf")
        assert run_oxibonsai("imatrix", *named, *arguments, "-o", outs[-1]).returncode == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_the_output_matrix_has_an_entry_where_it_is_asked_for(
    tiny_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.gguf"
    done = run_oxibonsai(
        "imatrix", tiny_path, "-f", TEXT, "-o", out, "-c", "64", "--chunks", "1", "--process-output"
    )
    assert done.returncode == 0, done.stderr
    found = read_imatrix(out)
    assert found.importance("token_embd.weight") is not None
    assert len(found.entries) == 15


def _heed_interrupts() -> None:
    """A shell's background jobs ignore them, and so would what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupt_keeps_the_windows_that_are_done(tiny_path: Path, tmp_path: Path) -> None:
    long_text, out = tmp_path / "long.txt", tmp_path / "m.gguf"
    long_text.write_text(TEXT.read_text() * 200)
    arguments = ["-f", long_text, "-o", out, "-c", "32", "--output-frequency", "1"]
    command = [*COMMAND, str(tiny_path), *map(str, arguments)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    )
    while not out.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    found = read_imatrix(out)
    assert f"holds the first {found.chunk_count} of " in said
    assert found.entries["blk.0.attn_q.weight"].counts.tolist() == [32 * found.chunk_count]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["long.txt", "m.gguf"]


def test_a_window_longer_than_the_context_names_the_size_that_fits(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "m.gguf", changes={"qwen3.context_length": (64, "u32")})
    line = ["imatrix", tmp_path / "m.gguf", "-f", TEXT, "-o", tmp_path / "i.gguf", "--chunks", 1]
    done = run_oxibonsai(*line)
    assert done.returncode == 2
    said = (
        "windows of 512 tokens are more than the model's context of 64: give --ctx-size 64 or less"
    )
    assert said in done.stderr
    assert not (tmp_path / "i.gguf").exists()
    done = run_oxibonsai(*line, "--ctx-size", 64)
    assert done.returncode == 0, done.stderr


def test_wrong_usage_is_said_and_writes_nothing(tiny_path: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("few words")
    out = tmp_path / "m.gguf"
    for arguments, code, sentence in (
        ([tiny_path, "-f", short, "-o", out], 2, "need at least"),
        ([tiny_path, "-f", tmp_path / "none", "-o", out], 2, "cannot read the text"),
        ([tiny_path, "-f", TEXT, "-o", tmp_path / "no" / "m.gguf"], 2, "there is no folder"),
        ([tmp_path / "none", "-f", TEXT, "-o", out], 3, "does not exist"),
    ):
        done = run_oxibonsai("imatrix", *arguments)
        assert done.returncode == code, done.stderr
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [short]
