"""What run and chat can do beyond plain sampling, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forked import run_oxibonsai


def run(path: Path, *arguments: str) -> dict[str, Any]:
    done = run_oxibonsai("run", "-m", str(path), "ab ab ab", "--json", "-s", "1", *arguments)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_speculation_reports_what_was_accepted_and_changes_nothing(tiny_path: Path) -> None:
    plain = run(tiny_path, "-n", "40", "--ignore-eos")
    ngram = run(tiny_path, "-n", "40", "--ignore-eos", "--speculate", "ngram")
    limits = ("--spec-draft-n-max", "4", "--spec-draft-n-min", "2", "--spec-draft-p-min", "0")
    both = ("--spec-type", "ngram-simple,draft-simple")
    draft = run(tiny_path, "-n", "40", "--ignore-eos", "-md", str(tiny_path), *limits)
    mixed = run(tiny_path, "-n", "40", "--ignore-eos", "-md", str(tiny_path), *limits, *both)
    assert plain["tokens"] == ngram["tokens"] == draft["tokens"] == mixed["tokens"]
    assert draft["speculation"]["accepted"] == draft["speculation"]["proposed"] > 0
    assert mixed["speculation"]["proposed"] > 0
    assert "speculation" not in plain


def test_samples_best_of_and_beams(tiny_path: Path) -> None:
    samples = run(tiny_path, "-n", "8", "--samples", "3", "--temp", "1")["samples"]
    assert [s["seed"] for s in samples] == [1, 2, 3]
    best = run(tiny_path, "-n", "8", "--best-of", "3", "--temp", "1")
    assert best["tokens"] in [s["tokens"] for s in samples]
    done = run_oxibonsai(
        "run", "-m", str(tiny_path), "ab", "--json", "-n", "4", "--beams", "3", "--raw"
    )
    beams = json.loads(done.stdout)["beams"]
    assert [b["score"] for b in beams] == sorted((b["score"] for b in beams), reverse=True)


@pytest.mark.parametrize(
    ("option", "value", "texts"),
    [("--regex", "[xy]{3}", None), ("--choice", "yes", ["yes"]), ("--json-object", None, None)],
)
def test_structures(tiny_path: Path, option: str, value: str | None, texts: list | None) -> None:
    result = run(tiny_path, "-n", "200", option, *([value] if value else []), "--temp", "0.1")
    assert texts is None or result["text"] in texts
    assert result["finish_reason"] in ("stop", "length")


def test_a_context_shift_is_said(tiny_path: Path) -> None:
    arguments = ("run", "-m", str(tiny_path), "ab", "-c", "64", "-n", "100", "--ignore-eos")
    done = run_oxibonsai(*arguments, "--context-shift")
    assert "context shift after" in done.stderr
    assert "context shift" not in run_oxibonsai(*arguments).stderr


def test_a_cut_document_is_said(tiny_path: Path) -> None:
    done = run_oxibonsai("run", "-m", str(tiny_path), "ab", "-n", "2", "--regex", "a{50}")
    assert "it is not complete" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--speculate", "ngram", "-md", "x"), "leave out --speculate or --draft-model"),
        (("--spec-type", "ngram-mod"), "ngram-mod is not available: there is one kind of n-grams"),
        (("--spec-type", "draft-eagle3"), "draft-eagle3 needs its file: give it with"),
        (("--spec-type", "guess"), "there is no speculation guess; known are auto, none, and"),
        (("--spec-type", "draft-mtp,draft-dflash"), "names several drafters"),
        (
            ("--spec-type", "draft-dflash"),
            "draft-dflash needs its file: give it with --draft-model",
        ),
        (("--beams", "2", "--samples", "2"), "--beams goes with"),
        (("--regex", "a", "--choice", "b"), "exclude each other"),
        (("--tool-choice", "auto"), "--tool-choice needs --tools"),
        (("--tools", "/does/not/exist"), "can't be read as JSON"),
        (("--kv-type", "f16", "--kv-pressure", "balanced"), "exclude each other"),
        (("--temp", "-1"), "temperature is -1.0"),
    ],
)
def test_options_that_contradict_each_other(
    tiny_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run_oxibonsai("run", "-m", str(tiny_path), "ab", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["chat.snapshot", "chat.json"])
def test_a_chat_goes_on_where_it_was_saved(tiny_path: Path, tmp_path: Path, name: str) -> None:
    base = ("chat", "-m", str(tiny_path), "--temp", "0", "-n", "12")
    whole = run_oxibonsai(*base, stdin="ab\nba\n")
    first = run_oxibonsai(*base, "--save", str(tmp_path / name), stdin="ab\n")
    second = run_oxibonsai(*base, "--load", str(tmp_path / name), stdin="ba\n")
    assert first.returncode == second.returncode == 0
    assert first.stdout + second.stdout == whole.stdout


def test_a_chat_of_another_kind_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no snapshot")
    done = run_oxibonsai("chat", "-m", str(tiny_path), "--load", str(tmp_path / "other"), stdin="")
    assert done.returncode == 3
    assert "is no snapshot" in done.stderr
