"""Folders to convert: on disk, in wheels, in installed packages."""

from __future__ import annotations

import gc
import zipfile
from pathlib import Path

import hf_folders
import pytest
from wheels import make_wheel

import oxibonsai
import tiny_model
from oxibonsai import AutoModelForCausalLM
from oxibonsai.errors import SourceError
from oxibonsai.server.engine_backend import served_models
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.settings import Settings
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


@pytest.fixture
def saved(from_wheel: Path, tmp_path: Path) -> None:
    """The package ``carrier``, with a tiny Qwen3 as Hugging Face's libraries save one."""
    tiny_model.write(tmp_path / "tiny.gguf")
    AutoModelForCausalLM.from_pretrained(tmp_path / "tiny.gguf").save_pretrained(tmp_path / "m")
    make_wheel(
        from_wheel, {f"carrier/m/{p.name}": p.read_bytes() for p in (tmp_path / "m").iterdir()}
    )


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("load_as", [None, "Q8_0"])
def test_the_folder_of_a_package_lives_as_long_as_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load_as: str | None
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    engine = oxibonsai.load("pip:carrier", load_as=load_as, parity="off")
    folder = Path(engine.model.weights.checkpoint.path)
    assert (folder / "config.json").is_file()
    del engine
    gc.collect()
    assert not folder.exists()
    assert list((tmp_path / "cache").glob("folder-*")) == []


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("several", [False, True], ids=["alone", "among others"])
def test_a_package_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    named = {"models": ("carrier=pip:carrier",)} if several else {"model": "pip:carrier"}
    settings = Settings(state_dir=tmp_path, parity="off", **named)
    registry = served_models(settings, Lifecycle())
    registry.load()
    try:
        with registry.lease("carrier") as instance:
            assert instance.pool is not None
        (model,) = registry.models()
        assert model.meta["size"] > 100_000
    finally:
        registry.close()


def test_a_cache_without_room_for_a_package_is_said(
    from_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(from_wheel, FILES)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "file"))
    with (
        pytest.raises(SourceError, match=r"cannot unpack the package carrier in .*OXIBONSAI_CACHE"),
        model_folder("pip:carrier"),
    ):
        pass
