"""Get CPython's headers for other versions and processors from Debian's packages."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import shutil
import tarfile
import urllib.request
from pathlib import Path

ARCHIVE = "https://deb.debian.org/debian"
# The release of Debian that has a version. None has 3.10 or 3.12.
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}


def debian_headers(python: str, architecture: str, folder: Path) -> Path:
    """Return a folder with ``Python.h``, downloading the package that has it on the first call.

    Args:
        python: A version, as ``3.13``.
        architecture: Debian's name of the processor: ``amd64`` or ``arm64``.
        folder: Where headers are kept.
    """
    target = folder / architecture / f"python{python}"
    if not (target / "Python.h").exists():
        if python not in SUITES:
            raise SystemExit(
                f"Debian has no headers of Python {python}: run this with Python {python} itself"
            )
        shutil.rmtree(target, ignore_errors=True)
        unpack_headers(_download(python, architecture), python, target)
    return target


def _download(python: str, architecture: str) -> bytes:
    """Return the package ``libpythonX.Y-dev``, which must have the hash that the index gives."""
    index = lzma.decompress(
        _read(f"dists/{SUITES[python]}/main/binary-{architecture}/Packages.xz")
    ).decode()
    name = f"Package: libpython{python}-dev"
    entry = next(e for e in index.split("\n\n") if e.partition("\n")[0] == name)
    fields = dict(line.split(": ", 1) for line in entry.splitlines() if re.match(r"[\w-]+: ", line))
    package = _read(fields["Filename"])
    if hashlib.sha256(package).hexdigest() != fields["SHA256"]:
        raise SystemExit(
            f"{fields['Filename']} isn't the file that Debian's index names: try again"
        )
    return package


def _read(path: str) -> bytes:
    with urllib.request.urlopen(f"{ARCHIVE}/{path}") as answer:
        return bytes(answer.read())


def _members(package: bytes) -> dict[str, bytes]:
    """Return the files of an ``ar`` archive, which a Debian package is."""
    found, position = {}, len(b"!<arch>\n")
    while position < len(package):
        header = package[position : position + 60]
        start, size = position + 60, int(header[48:58])
        found[header[:16].decode().strip().rstrip("/")] = package[start : start + size]
        position = start + size + size % 2
    return found


def unpack_headers(package: bytes, python: str, target: Path) -> None:
    """Write the headers of a Debian package to a folder.

    The package's own ``pyconfig.h`` picks that of the processor from another folder, which takes its
    place here.
    """
    name, data = next((n, d) for n, d in _members(package).items() if n.startswith("data.tar"))
    version = re.escape(python)
    own = re.compile(rf"(?:\./)?usr/include/python{version}/(.+)")
    of_processor = re.compile(rf"(?:\./)?usr/include/[\w-]+/python{version}/(pyconfig\.h)")
    with tarfile.open(name=name, fileobj=io.BytesIO(data)) as archive:
        files = [m for m in archive.getmembers() if m.isfile()]
        for pattern in (own, of_processor):
            for member in files:
                found = pattern.fullmatch(member.name)
                content = archive.extractfile(member) if found else None
                if found and content:
                    path = target / found[1]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
