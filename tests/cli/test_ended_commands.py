"""Ctrl-C and SIGTERM in ``oxibonsai run`` and ``oxibonsai chat``: what came is kept, the code tells."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from oxibonsai.cli import conversation
from oxibonsai.engine.sequence import Times
from oxibonsai.output import Delta

COMMAND = [sys.executable, "-c", "from oxibonsai.cli.main import main; main()"]
# Seconds after which something is taken to hang.
PATIENCE = 120
ENDLESS = ["--ctx-size", "512", "--context-shift", "--ignore-eos", "--temp", "0", "--threads", "1"]


def _heed_interrupts() -> None:
    """A shell's background jobs ignore them, and so would what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def started(*arguments: str, stdin: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_heed_interrupts,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def read_up_to(stream: IO[bytes], end: bytes) -> bytes:
    """What comes up to some bytes, and nothing beyond them."""
    data = b""
    while not data.endswith(end):
        assert select.select([stream], [], [], PATIENCE)[0], data
        piece = os.read(stream.fileno(), 1)
        assert piece, data
        data += piece
    return data


def skip(stream: IO[bytes]) -> None:
    """Reads what there is, and waits for no more."""
    os.set_blocking(stream.fileno(), False)
    while stream.read():
        pass
    os.set_blocking(stream.fileno(), True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_run_that_is_ended_has_written_what_came(
    tiny_path: Path, number: signal.Signals, code: int
) -> None:
    line = ["run", "-m", str(tiny_path), "--raw", "ab", *ENDLESS]
    with started(*line, stdin=subprocess.DEVNULL) as process:
        first = pipe(process.stdout).read(200)
        process.send_signal(number)
        rest, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert len(first + rest) >= 200
    assert b"Traceback" not in said


def test_ctrl_c_ends_an_answer_and_the_chat_goes_on(tiny_path: Path) -> None:
    said = b""
    with started("chat", "-m", str(tiny_path), *ENDLESS) as process:
        for _ in range(2):
            pipe(process.stdin).write(b"hello\n")
            pipe(process.stdin).flush()
            assert pipe(process.stdout).read(200)
            process.send_signal(signal.SIGINT)
            said += read_up_to(pipe(process.stderr), b"[stopped]")
            # What came of this answer meanwhile is not the beginning of the next one.
            skip(pipe(process.stdout))
        said += process.communicate(timeout=PATIENCE)[1]  # the end of its input ends it
    assert process.returncode == 0
    assert said.count(b"[stopped]") == 2
    assert b"Traceback" not in said


def test_ctrl_c_prints_the_word_that_was_held_before_its_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Reply:
        sequence = SimpleNamespace(shifts=[], num_generated=2, times=Times())
        finish_reason = None

        def __iter__(self) -> Iterator[Delta]:
            yield Delta(content="one tw")
            raise KeyboardInterrupt

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(conversation, "read_prompt_of", lambda *_: None)
    talk: Any = object.__new__(conversation.Conversation)
    talk.engine, talk.as_json, talk.wraps, talk.shows_reasoning = None, False, True, True
    talk._show(Reply())
    assert screen.getvalue() == "one tw [stopped]\n"
