"""Files, folders, shards on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oxibonsai.errors import SourceError
from oxibonsai.sources import resolve, split_info


def test_a_file_and_a_folder_with_one_model(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    (tmp_path / "mmproj-m.gguf").write_bytes(b"x")
    (tmp_path / "README.md").write_text("x")
    assert resolve(model) == model
    assert resolve(tmp_path) == model
    assert resolve(str(tmp_path)) == model


def test_several_models_in_a_folder_are_listed(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(SourceError, match=r"several models; .* from: a\.gguf, b\.gguf"):
        resolve(tmp_path)


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        resolve(tmp_path / "absent.gguf")
    with pytest.raises(
        SourceError, match=r"holds no GGUF model, nor config\.json with safetensors"
    ):
        resolve(tmp_path)
    with pytest.raises(SourceError, match="name is empty"):
        resolve("")


def test_any_shard_names_its_set_and_missing_ones_are_named(tmp_path: Path) -> None:
    names = [f"m-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    assert resolve(tmp_path / names[2]) == tmp_path / names[0]
    assert resolve(tmp_path) == tmp_path / names[0]
    info = split_info(tmp_path / names[1])
    assert info is not None
    assert (info.index, info.count) == (2, 3)
    (tmp_path / names[1]).unlink()
    for source in (tmp_path, tmp_path / names[0], tmp_path / names[2]):
        with pytest.raises(
            SourceError, match=f"lacks 1 of the 3 files of a split model: {names[1]}$"
        ):
            resolve(source)


def test_a_folder_with_later_shards_only_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "m-00002-of-00003.gguf").write_bytes(b"x")
    with pytest.raises(
        SourceError, match=r"lacks 2 of the 3 files .*: m-00001-of-00003\.gguf, m-00003"
    ):
        resolve(tmp_path)


def test_of_many_missing_shards_some_are_named(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-99999.gguf").write_bytes(b"x")
    with pytest.raises(
        SourceError, match=r"lacks 99998 of .*m-00009-of-99999\.gguf and 99990 more"
    ):
        resolve(tmp_path)


@pytest.mark.parametrize("name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf"])
def test_a_name_that_counts_past_its_set_is_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert split_info(tmp_path / name) is None
    assert resolve(tmp_path) == tmp_path / name


def test_a_vision_projector_is_no_model_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "m-mmproj-F16.gguf").write_bytes(b"x")
    with pytest.raises(SourceError, match="holds no GGUF model"):
        resolve(tmp_path)


def test_special_files_and_impossible_names_are_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    (tmp_path / "file").write_bytes(b"x")
    for name, message in (
        ("pipe.gguf", "is neither a file nor a folder"),
        ("loop.gguf", "cannot look at|does not exist"),
        ("n" * 5000, "cannot look at|does not exist"),
        ("nul\0.gguf", "does not exist"),
        ("file/m.gguf", "does not exist"),
    ):
        with pytest.raises(SourceError, match=message):
            resolve(tmp_path / name)
    with pytest.raises(SourceError, match="holds no GGUF model"):
        resolve(tmp_path)
    with pytest.raises(SourceError, match="does not exist"):
        resolve("~nobody-of-this-name/m.gguf")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        with pytest.raises(SourceError, match=r"cannot look at .*: Permission denied"):
            resolve(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_the_environment_names_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    monkeypatch.setenv("OXIBONSAI_MODEL", str(model))
    assert resolve(None) == model
