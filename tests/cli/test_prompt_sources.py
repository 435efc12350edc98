"""Where a prompt comes from: an argument, an option, a file, stdin, or stdin and one of them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from forked import run_oxibonsai
from oxibonsai import AutoTokenizer

NOTHING = Path(os.devnull)


def prompt_of(
    tiny_path: Path, *arguments: object, command: str = "run", stdin: bytes | Path = NOTHING
) -> str:
    """The prompt that a command understood."""
    options = ["--raw", "-n", "1"] if command == "run" else []
    done = run_oxibonsai(command, "-m", tiny_path, "--json", *arguments, *options, stdin=stdin)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    ids = result["prompt_tokens" if command == "run" else "tokens"]
    return AutoTokenizer.from_pretrained(tiny_path).decode(ids)


def test_stdin_goes_before_a_prompt_that_is_given(tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Summarise:")
    for given in (["Summarise:"], ["--prompt", "Summarise:"], ["--file", file]):
        assert prompt_of(tiny_path, *given, stdin=b"A text.\n") == "A text.\n Summarise:"


@pytest.mark.parametrize("given", [[], ["-"], ["--prompt", "-"], ["--file", "-"]], ids=str)
def test_nothing_or_a_dash_is_stdin(tiny_path: Path, given: list[str]) -> None:
    assert prompt_of(tiny_path, *given, stdin=b"A text.") == "A text."


def test_a_prompt_stands_alone_where_stdin_has_nothing(tiny_path: Path) -> None:
    assert prompt_of(tiny_path, "Hi", stdin=NOTHING) == "Hi"
    assert prompt_of(tiny_path, "Hi", stdin=b"") == "Hi"


def test_stdin_may_be_a_pipe_or_closed(tiny_path: Path) -> None:
    line = [sys.executable, "-m", "oxibonsai", "run", "-m", tiny_path, "--json", "--raw", "-n", "1"]
    piped = subprocess.run([*line, "Hi"], input=b"A ", capture_output=True, check=True)
    assert json.loads(piped.stdout)["prompt_tokens"] == [32, 220, 220, 39, 72]
    line = f'"$0" -m oxibonsai run -m "{tiny_path}" --json --raw -n 1 Hi <&-'
    closed = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, check=True)
    assert json.loads(closed.stdout)["prompt_tokens"] == [39, 72]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("run", "{path}"),
        ("tokenize", "{folder}"),
        ("embed", "hf:org/repo:Q4_0"),
        ("run", "seedling-1bit"),
    ],
)
def test_a_model_in_the_place_of_a_text_is_told_apart(
    tiny_path: Path, command: str, name: str
) -> None:
    named = name.format(path=tiny_path, folder=tiny_path.parent)
    done = run_oxibonsai(command, named, stdin=NOTHING)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{command} takes a text: name the model with -m {named}\n")
    # It is a text where the model is named.
    if command == "tokenize":
        assert prompt_of(tiny_path, named, command=command) == named


def test_an_empty_text_is_no_model(tiny_path: Path) -> None:
    done = run_oxibonsai("run", "", cwd=tiny_path.parent, stdin=NOTHING)
    assert done.returncode == 2
    assert "the text is empty" in done.stderr


def test_a_terminal_is_not_waited_for(tiny_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        terminal = Path(os.ttyname(theirs))
        assert prompt_of(tiny_path, "Hi", stdin=terminal) == "Hi"
        done = run_oxibonsai("run", "-m", tiny_path, stdin=terminal)
        assert done.returncode == 2
        assert "no prompt: give it as an argument" in done.stderr
    finally:
        os.close(ours)
        os.close(theirs)


def test_tokenize_takes_the_text_as_it_is_given(tiny_path: Path) -> None:
    assert prompt_of(tiny_path, "Hi", command="tokenize", stdin=b"more") == "Hi"
    assert prompt_of(tiny_path, command="tokenize", stdin=b"more") == "more"


def test_text_that_is_not_utf8_is_refused(tiny_path: Path) -> None:
    done = run_oxibonsai("run", "-m", tiny_path, "Summarise:", stdin=b"ab\xff")
    assert done.returncode == 2
    assert "the text on stdin is not UTF-8 (byte 2)" in done.stderr
