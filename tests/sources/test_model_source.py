"""What a model's name stands for: a GGUF file, a folder of safetensors, or an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from wheels import make_wheel

from oxibonsai.errors import SourceError
from oxibonsai.sources.model_source import Kind, find_model


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder with files of these names."""

    def make(*names: str) -> Path:
        for name in names:
            file = tmp_path / "model" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("{}")
        return tmp_path / "model"

    return make


@pytest.mark.parametrize(
    ("names", "source", "kind", "path"),
    [
        (["m.gguf", "model.safetensors", "config.json"], "", Kind.GGUF, "m.gguf"),
        (["m.gguf", "model.safetensors"], "m.gguf", Kind.GGUF, "m.gguf"),
        (["config.json", "model.safetensors", "model.onnx"], "", Kind.FOLDER, ""),
        (["config.json", "mmproj.gguf", "model.safetensors"], "", Kind.FOLDER, ""),
        (["config.json", "onnx/model.onnx"], "", Kind.ONNX, ""),
        (["config.json", "model.safetensors", "model.onnx"], "model.onnx", Kind.ONNX, "model.onnx"),
    ],
)
def test_the_files_say_what_a_path_is(
    model: Callable[..., Path], names: list[str], source: str, kind: Kind, path: str
) -> None:
    folder = model(*names)
    with find_model(folder / source) as found:
        assert (found.kind, found.path, found.name) == (kind, folder / path, "")


def test_the_environment_may_name_a_folder(
    model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model("config.json", "model.safetensors")
    monkeypatch.setenv("OXIBONSAI_MODEL", str(folder))
    with find_model(None) as found:
        assert (found.kind, found.path) == (Kind.FOLDER, folder)


@pytest.mark.parametrize(
    ("files", "source", "kind"),
    [
        ({"carrier/m.gguf": b"GGUF"}, "pip:carrier", Kind.GGUF),
        (
            {"carrier/m/config.json": b"{}", "carrier/m/a.safetensors": b""},
            "pip:carrier",
            Kind.FOLDER,
        ),
    ],
)
def test_a_package_is_what_its_wheel_holds(
    from_wheel: Path, files: dict[str, bytes], source: str, kind: Kind
) -> None:
    make_wheel(from_wheel, files)
    with find_model(source) as found:
        assert (found.kind, found.name) == (kind, "carrier")
        assert found.path.exists()
    assert found.path.exists() == (kind is Kind.GGUF)  # which the cache keeps


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(["readme.md"], "holds no GGUF model, nor config.json"), ([], "does not exist")],
)
def test_what_is_no_model_is_one_error(
    model: Callable[..., Path], tmp_path: Path, names: list[str], sentence: str
) -> None:
    model(*names)
    with pytest.raises(SourceError, match=sentence), find_model(tmp_path / "model"):
        pass
