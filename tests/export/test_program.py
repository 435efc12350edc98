"""oxibonsai-core, the program of csrc/program: its ids are those of this package, on Linux and Windows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from native_build import build, build_windows, needs_compiler, wine_environment
from oxibonsai import LLM, SamplingParams
from oxibonsai.export.web_folder import CORE
from web_folders import SEEDLINGS, export_with_core

pytestmark = [
    pytest.mark.release,
    pytest.mark.long("compiles all native code"),
    pytest.mark.timeout(2400),
    needs_compiler,
    pytest.mark.skipif(
        not Path("/usr/include/nlohmann/json.hpp").exists(),
        reason="needs nlohmann/json.hpp (Debian: nlohmann-json3-dev)",
    ),
]

OPTIONS = ("-DOXIBONSAI_PROGRAM=ON",)

PROMPT = "Once upon a time"
# Longer than the program's steps, and than a page of the cache.
LONG = " ".join([PROMPT] * 60)


@dataclass(frozen=True)
class Program:
    """A build of the program.

    Attributes:
        command: What starts it.
        environment: For the command.
    """

    command: list[str]
    environment: dict[str, str]

    def run(self, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        line = [*self.command, folder.name, *map(str, arguments)]
        environment = os.environ | self.environment
        return subprocess.run(
            line, capture_output=True, text=True, cwd=folder.parent, env=environment
        )


def on_linux() -> Program:
    folder = build("program", *OPTIONS, target="oxibonsai_program")
    return Program([str(folder / "csrc" / "oxibonsai-core")], {})


def on_windows() -> Program:
    wine, environment = wine_environment()
    folder = build_windows(*OPTIONS, target="oxibonsai_program")
    return Program([wine, str(folder / "csrc" / "oxibonsai-core.exe")], environment)


@pytest.fixture(scope="module", params=[on_linux, on_windows])
def program(request: pytest.FixtureRequest) -> Program:
    make: Callable[[], Program] = request.param
    return make()


@pytest.fixture(scope="module", params=["seedling-1bit", "seedling-ternary"])
def model(request: pytest.FixtureRequest) -> Path:
    return SEEDLINGS / f"{request.param}.gguf"


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported model; the program needs no core for browsers."""
    core = tmp_path_factory.mktemp("core")
    for name in CORE:
        (core / name).touch()
    return export_with_core(model, tmp_path_factory.mktemp("exported") / "model", core)


def test_ids_are_those_of_this_package(program: Program, model: Path, folder: Path) -> None:
    greedy = SamplingParams(temperature=0.0, repetition_penalty=1.0, max_tokens=50)
    with LLM(str(model)) as llm:
        found = llm.generate([PROMPT, LONG], greedy)
    for output in found:
        expected = list(output.outputs[0].token_ids)
        prompt = output.prompt_token_ids
        for threads in (1, 3):
            done = program.run(folder, len(expected), threads, *prompt)
            assert done.returncode == 0, done.stderr
            assert [int(word) for word in done.stdout.split()] == expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((5, 1), "usage"),
        ((0, 1, 7), "COUNT is a number from 1"),
        ((5, 1, "-7"), "TOKEN is a number from 0"),
        ((5, 1, 99_999_999), "99999999"),
    ],
)
def test_wrong_arguments_are_refused(
    program: Program, folder: Path, arguments: tuple[object, ...], sentence: str
) -> None:
    done = program.run(folder, *arguments)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert done.stdout == ""


def test_a_piece_that_was_cut_is_refused(program: Program, folder: Path, tmp_path: Path) -> None:
    cut = _copy(folder, tmp_path / "cut")
    for piece in cut.glob("*.bin"):
        piece.write_bytes(piece.read_bytes()[:-1])
    done = program.run(cut, 5, 1, 7)
    assert done.returncode == 1
    assert "has not the" in done.stderr


def test_a_folder_without_a_model_is_refused(program: Program, tmp_path: Path) -> None:
    done = program.run(tmp_path, 5, 1, 7)
    assert done.returncode == 1
    assert "model.json can't be read" in done.stderr


def _copy(folder: Path, to: Path, **changed: Any) -> Path:
    shutil.copytree(folder, to)
    document = json.loads((to / "model.json").read_text()) | changed
    (to / "model.json").write_text(json.dumps(document))
    return to


def test_logits_of_all_rows_are_refused(program: Program, folder: Path, tmp_path: Path) -> None:
    calls = json.loads((folder / "model.json").read_text())["calls"]
    embed = next(call for call in calls if call[0] == "embed")
    hostile = _copy(folder, tmp_path / "rows", calls=[embed, ["set_output", ["logits", 0], {}]])
    done = program.run(hostile, 5, 1, *range(100))
    assert done.returncode == 1
    assert "logits of other rows" in done.stderr


def test_pieces_lie_in_the_folder(program: Program, folder: Path, tmp_path: Path) -> None:
    pieces = json.loads((folder / "model.json").read_text())["pieces"]
    pieces[0]["file"] = f"../{folder.name}/{pieces[0]['file']}"
    done = program.run(_copy(folder, tmp_path / "outside", pieces=pieces), 5, 1, 7)
    assert done.returncode == 1
    assert "outside of its folder" in done.stderr
