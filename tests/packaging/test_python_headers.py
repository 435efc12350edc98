"""Headers come out of a Debian package as a compiler for another processor reads them."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
from pathlib import Path

import pytest

import python_headers

FILES = {
    "./usr/include/python3.13/Python.h": b"// the interface\n",
    "./usr/include/python3.13/cpython/object.h": b"// inner\n",
    "./usr/include/python3.13/pyconfig.h": b"#include <aarch64-linux-gnu/python3.13/pyconfig.h>\n",
    "./usr/include/aarch64-linux-gnu/python3.13/pyconfig.h": b"#define SIZEOF_LONG 8\n",
    "./usr/lib/python3.13/config/Makefile": b"all:\n",
}


def package() -> bytes:
    """A package as dpkg-deb makes one: an ``ar`` archive with members padded to even sizes."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    whole = b"!<arch>\n"
    for name, content in {
        "debian-binary": b"2.0\n",
        "control.tar.xz": b"odd",
        "data.tar.xz": data.getvalue(),
    }.items():
        whole += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        whole += content + b"\n" * (len(content) % 2)
    return whole


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What Debian's server has, by path."""
    index = (
        "Package: libpython3.13-dev-of-another\nFilename: pool/wrong.deb\nSHA256: 0\n\n"
        "Package: libpython3.13-dev\nDescription: headers\n of Python: all\n"
        f"Filename: pool/right.deb\nSHA256: {hashlib.sha256(package()).hexdigest()}\n"
    )
    held = {
        "dists/trixie/main/binary-arm64/Packages.xz": lzma.compress(index.encode()),
        "pool/right.deb": package(),
    }
    monkeypatch.setattr(python_headers, "_read", held.__getitem__)
    return held


def test_headers_have_the_processors_configuration(
    archive: dict[str, bytes], tmp_path: Path
) -> None:
    folder = python_headers.debian_headers("3.13", "arm64", tmp_path)
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.h")}
    assert found == {
        "Python.h": b"// the interface\n",
        "cpython/object.h": b"// inner\n",
        "pyconfig.h": b"#define SIZEOF_LONG 8\n",
    }


def test_they_are_downloaded_once(archive: dict[str, bytes], tmp_path: Path) -> None:
    first = python_headers.debian_headers("3.13", "arm64", tmp_path)
    archive.clear()
    assert python_headers.debian_headers("3.13", "arm64", tmp_path) == first


def test_another_file_than_the_index_names_is_refused(
    archive: dict[str, bytes], tmp_path: Path
) -> None:
    archive["pool/right.deb"] += b"\n"
    with pytest.raises(SystemExit, match="isn't the file that Debian's index names"):
        python_headers.debian_headers("3.13", "arm64", tmp_path)


def test_a_version_that_debian_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no headers of Python 3\.12"):
        python_headers.debian_headers("3.12", "amd64", tmp_path)
