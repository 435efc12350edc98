"""Folders to convert: on disk, in wheels, in installed packages."""

from __future__ import annotations

import zipfile
from pathlib import Path

import hf_folders
import pytest
from wheels import make_wheel

import oxibonsai
from oxibonsai.errors import SourceError
from oxibonsai.sources import resolve
from oxibonsai.sources.model_folder import model_folder

FILES = {
    "carrier/__init__.py": b"raise SystemExit",
    "carrier/model/config.json": b"{}",
    "carrier/model/model.safetensors": b"weights",
    "carrier/model/1_Pooling/config.json": b"{}",
}


def test_a_folder_is_itself(tmp_path: Path) -> None:
    with model_folder(str(tmp_path)) as folder:
        assert folder == tmp_path
    with pytest.raises(SourceError, match="does not exist"), model_folder(str(tmp_path / "none")):
        pass


def test_a_wheel_is_unpacked_and_leaves_nothing(from_wheel: Path) -> None:
    make_wheel(from_wheel, FILES)
    with model_folder("pip:carrier") as folder:
        names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*"))
        assert names == ["1_Pooling/config.json", "config.json", "model.safetensors"]
    assert not folder.exists()


def test_an_installed_package_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(make_wheel(tmp_path, FILES)) as archive:
        archive.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with model_folder("pip:carrier==1.0") as folder:
        assert folder == tmp_path / "site" / "carrier" / "model"
    assert folder.exists()


@pytest.mark.parametrize(
    ("files", "source", "sentence"),
    [
        ({"c/m.bin": b""}, "pip:carrier", "it holds none"),
        (
            {f"{d}/{n}": b"{}" for d in "ab" for n in ("config.json", "m.safetensors")},
            "pip:carrier",
            "several: a, b",
        ),
        (FILES, "pip:carrier:model.safetensors", "a folder is converted whole: pip:carrier"),
        (FILES, "pip:carrier==9", "cannot fetch the package carrier==9"),
        (FILES, "pip:", "is no package"),
    ],
)
def test_what_is_no_model_is_said(
    files: dict[str, bytes], source: str, sentence: str, from_wheel: Path
) -> None:
    make_wheel(from_wheel, files)
    with pytest.raises(SourceError, match=sentence), model_folder(source):
        pass


def test_running_a_package_of_safetensors_names_convert(from_wheel: Path) -> None:
    make_wheel(from_wheel, FILES)
    with pytest.raises(SourceError, match=r"no GGUF model; .* with oxibonsai convert IN OUT"):
        resolve("pip:carrier")


def test_a_package_of_safetensors_is_loaded_as_its_folder_is(
    from_wheel: Path, tmp_path: Path
) -> None:
    pytest.importorskip("transformers", reason="needs transformers and torch")
    folder = tmp_path / "model"
    hf_folders.save(hf_folders.CASES[0], folder, tokenizer=False)
    make_wheel(from_wheel, {f"carrier/m/{p.name}": p.read_bytes() for p in folder.iterdir()})
    package = oxibonsai.load("pip:carrier==1.0")
    assert package.logits([1, 2, 3]).tobytes() == oxibonsai.load(folder).logits([1, 2, 3]).tobytes()
    assert package.model.config.name == "carrier"
