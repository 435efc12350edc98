"""Folders: models that are one, and results that go into one that is not there yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forked import run_oxibonsai
from oxibonsai import AutoModelForCausalLM
from oxibonsai.files.whole_file import written_whole


@pytest.fixture(scope="module")
def folder(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as Hugging Face's libraries save one."""
    path = tmp_path_factory.mktemp("saved") / "tiny"
    AutoModelForCausalLM.from_pretrained(tiny_path).save_pretrained(path)
    return path


def test_info_of_a_folder_says_what_it_says_of_a_file(folder: Path, tiny_path: Path) -> None:
    of_folder, of_file = (
        json.loads(run_oxibonsai("info", "-m", path, "--json").stdout)
        for path in (folder, tiny_path)
    )
    assert set(of_folder) == set(of_file)
    assert of_folder["file"] == str(folder)
    assert of_folder["quant_types"] == [{"type": "F32", "tensors": 24, "bytes": 1_730_048}]
    for fact in ("architecture", "tensors", "tokenizer", "runs", "default_ctx_size"):
        assert of_folder[fact] == of_file[fact]
    assert "qwen3" in run_oxibonsai("info", "-m", folder).stdout


def test_a_folder_tokenizes(folder: Path) -> None:
    ids = json.loads(run_oxibonsai("tokenize", "-m", folder, "--json", "abc é").stdout)["tokens"]
    done = run_oxibonsai("detokenize", "-m", folder, "--json", *ids)
    assert json.loads(done.stdout) == {"text": "abc é"}


def test_results_go_into_folders_that_are_made(
    tiny_path: Path, folder: Path, tmp_path: Path
) -> None:
    shards, whole = tmp_path / "a" / "shards", tmp_path / "b" / "c"
    for line in (
        ["split", tiny_path, shards / "m", "--max-tensors", 10],
        ["merge", shards / "m-00001-of-00003.gguf", whole / "merged.gguf"],
        ["quantize", tiny_path, tmp_path / "d" / "m.gguf", "Q8_0"],
        ["convert", folder, tmp_path / "e" / "m.gguf"],
    ):
        done = run_oxibonsai(*line)
        assert done.returncode == 0, done.stderr
    assert len(list(shards.iterdir())) == 3
    assert [p.name for p in whole.iterdir()] == ["merged.gguf"]
    assert (tmp_path / "d" / "m.gguf").exists()
    assert (tmp_path / "e" / "m.gguf").exists()


@pytest.mark.parametrize("name", ["talk", "talk.json"])
def test_a_chat_is_saved_into_a_folder_that_is_made(
    tiny_path: Path, tmp_path: Path, name: str
) -> None:
    place = tmp_path / "new" / "chats" / name
    done = run_oxibonsai("chat", "-m", tiny_path, "-n", 2, stdin=f"ab\n/save {place}\n/exit\n")
    assert done.returncode == 0
    assert [p.name for p in place.parent.iterdir()] == [name]


def test_a_place_where_nothing_can_be_written_is_named(tiny_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_oxibonsai("split", tiny_path, tmp_path / "file" / "m", "--max-tensors", 10)
    assert done.returncode == 1
    assert f"cannot write {tmp_path}/file/m-00001-of-00003.gguf: the folder" in done.stderr
    done = run_oxibonsai("chat", "-m", tiny_path, "-n", 2, stdin=f"ab\n/save {tmp_path}\n/exit\n")
    assert f"cannot write {tmp_path}: it is a folder; name a file" in done.stderr
    with (
        pytest.raises(OSError, match=f"cannot write {tmp_path}: it is a folder"),
        written_whole(tmp_path),
    ):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
