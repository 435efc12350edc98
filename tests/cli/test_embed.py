"""``oxibonsai convert`` and ``embed``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bert_folder
from forked import run_oxibonsai


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bert")
    bert_folder.write(folder / "model")
    done = run_oxibonsai("convert", str(folder / "model"), str(folder / "m.gguf"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(folder / "m.gguf"))
    assert done.stderr == ""  # the bar is for terminals
    assert sorted(p.name for p in folder.iterdir()) == ["m.gguf", "model"]
    return str(folder / "m.gguf")


def vectors(*arguments: str) -> np.ndarray:
    done = run_oxibonsai("embed", *arguments)
    assert done.returncode == 0, done.stderr
    return np.array([[float(v) for v in line.split()] for line in done.stdout.splitlines()])


def test_a_line_a_text_and_the_same_in_json(model: str) -> None:
    lines = vectors("--model", model, "hello world", "unbelievable tea")
    assert lines.shape == (2, 128)
    assert np.allclose(np.linalg.norm(lines, axis=1), 1, atol=1e-6)
    done = run_oxibonsai("embed", "-m", model, "--json", "hello world", "unbelievable tea")
    assert np.array_equal(
        np.float32(json.loads(done.stdout)["embeddings"]), lines.astype(np.float32)
    )


def test_options_change_the_vectors(model: str) -> None:
    whole = vectors("-m", model, "--no-normalize", "hello world")
    assert abs(np.linalg.norm(whole) - 1) > 0.01
    short = vectors("-m", model, "--dimensions", "8", "hello world")
    assert np.allclose(short[0], whole[0, :8] / np.linalg.norm(whole[0, :8]), atol=1e-6)
    cls = vectors("-m", model, "--pooling", "cls", "--no-normalize", "hello world")
    assert not np.allclose(cls, whole)


def test_texts_come_from_a_file_or_stdin_too(model: str, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("hello world\ntea\n")
    expected = vectors("-m", model, "hello world", "tea")
    assert np.array_equal(vectors("-m", model, "--file", str(tmp_path / "texts")), expected)
    piped = run_oxibonsai("embed", "-m", model, "--file", "-", "hello world", stdin="tea\n")
    rows = [[float(v) for v in line.split()] for line in piped.stdout.splitlines()]
    assert np.array_equal(np.array(rows), expected)


def test_type_f32_is_twice_as_large_as_f16(model: str, tmp_path: Path) -> None:
    folder = Path(model).parent / "model"
    sizes = {}
    for kind in ("f32", "f16"):
        out = tmp_path / f"{kind}.gguf"
        assert run_oxibonsai("convert", str(folder), str(out), "--type", kind).returncode == 0
        sizes[kind] = out.stat().st_size
    assert sizes["f32"] > 1.6 * sizes["f16"]


def test_what_fails_is_one_line(model: str, tmp_path: Path) -> None:
    folder = str(Path(model).parent / "model")
    for arguments, code, sentence in (
        (["embed", "-m", model], 2, "no texts"),
        (["embed", "-m", model, ""], 2, "text 0 is empty"),
        (["embed", "-m", model, "--dimensions", "129", "tea"], 2, "1 to 128"),
        (["embed", "-m", model, "--file", str(tmp_path / "none"), "tea"], 2, "cannot read"),
        (["embed", "-m", model, "--file", model], 2, "is not UTF-8 text"),
        (["embed", model, "tea"], 2, f"name the model with -m {model}"),
        (["rerank", "-q", "tea", "cup", model], 2, f"name the model with -m {model}"),
        (["convert", str(tmp_path / "none"), str(tmp_path / "m.gguf")], 3, "does not exist"),
        (["convert", str(tmp_path), str(tmp_path / "m.gguf")], 3, "has no config.json"),
        (["convert", folder, str(Path(model) / "b.gguf")], 1, "cannot write"),
        (
            ["convert", "hf:org/repo:Q1_0", str(tmp_path / "m.gguf")],
            3,
            "converted whole: hf:org/repo",
        ),
        (["run", "-m", model, "-p", "tea", "--raw"], 3, "is an encoder"),
    ):
        done = run_oxibonsai(*arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1
