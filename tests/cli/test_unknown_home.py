"""``~NAME`` of a user whom the machine does not have: the sentence of any file that is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oxibonsai import RequestError
from oxibonsai.cli import main as command_line
from oxibonsai.server.registry.catalog import models_in
from oxibonsai.server.registry.presets import read_presets

NOWHERE = "~no-such-user-of-this-machine/x"
MODEL = "MODEL"  # stands for a file that is there
COMMANDS = (
    *([name, "-m", NOWHERE] for name in ("info", "verify", "bench", "chat")),
    *([name, "-m", NOWHERE, "a"] for name in ("embed", "tokenize", "image")),
    ["run", "-m", NOWHERE, "-p", "a"],
    ["detokenize", "-m", NOWHERE, "1"],
    ["rerank", "-m", NOWHERE, "-q", "a", "b"],
    ["list", NOWHERE],
    ["convert", NOWHERE, "o.gguf"],
    ["convert", "--onnx", NOWHERE, "o.gguf"],
    ["quantize", NOWHERE, "o.gguf", "q8_0"],
    ["split", NOWHERE, "o", "--max-tensors", "3"],
    ["merge", NOWHERE, "o.gguf"],
    ["image", "a", "--lora", NOWHERE],
    ["image", "a", "-m", "seedling-picture", "--vae", NOWHERE],
    *(["run", "-m", MODEL, option, NOWHERE, "-p", "a"] for option in ("--lora", "--mmproj")),
    ["run", "-m", MODEL, "--draft-model", NOWHERE, "-p", "a"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c[:-1]))
def test_a_home_of_nobody_is_a_missing_file(
    command: list[str],
    tiny_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(tiny_path) if word == MODEL else word for word in command]
    monkeypatch.setattr(sys, "argv", ["oxibonsai", *given])
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(SystemExit) as ended:
            command_line.main()
    assert ended.value.code in (2, 3)
    said = capsys.readouterr().err
    assert NOWHERE in said


@pytest.mark.parametrize("read", [models_in, read_presets])
def test_a_server_says_it_of_its_folders_and_presets(read: Callable[[Path], object]) -> None:
    with pytest.raises(RequestError, match=f"cannot read .*{NOWHERE}"):
        read(Path(NOWHERE))
