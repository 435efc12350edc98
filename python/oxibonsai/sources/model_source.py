"""Sources that a model's name stands for: a GGUF file, a folder of safetensors, or an ONNX file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oxibonsai.errors import SourceError
from oxibonsai.files.home_paths import with_home
from oxibonsai.sources import resolve, source_text
from oxibonsai.sources.file_choice import Kind, kind_of
from oxibonsai.sources.http import is_url
from oxibonsai.sources.local import PACKAGED, kind_of_path
from oxibonsai.sources.model_folder import downloaded_wheel, model_folder, model_name, unpack
from oxibonsai.sources.pip_package import installed_package, keep_wheel, kept_folder, parse_package

__all__ = ["FoundModel", "Kind", "find_model"]


@dataclass(frozen=True)
class FoundModel:
    """Where a model's files are.

    Attributes:
        kind: What they are.
        path: The GGUF file, or its first shard; the folder, or the ONNX file.
        name: The repository's or the package's; empty: that of the path.
    """

    kind: Kind
    path: Path
    name: str


@contextmanager
def find_model(source: str | os.PathLike[str] | None) -> Iterator[FoundModel]:
    """Yield what a name stands for, fetched where it is remote.

    Args:
        source: What :func:`oxibonsai.sources.resolve` takes; or a folder, repository or package
            without a GGUF file but with ``config.json`` and safetensors or ONNX, or an ONNX file
            (also ``hf:org/repo:FILE.onnx``).

    The files of a package that is not installed are there for as long as the context lasts.

    Raises:
        SourceError: There is no such model, or more than one could be meant.
        RequestError: The source is neither a string nor a path.
    """
    text = os.environ.get("OXIBONSAI_MODEL", "") if source is None else source_text(source)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import find_on_hub

        yield FoundModel(*find_on_hub(text.removeprefix("hf:")), model_name(text))
    elif text.startswith("pip:"):
        with _find_package(text) as found:
            yield found
    elif not text or text in PACKAGED or is_url(text):
        yield FoundModel(Kind.GGUF, resolve(source), "")
    elif (kind := kind_of_path(with_home(text))) is Kind.GGUF:
        yield FoundModel(kind, resolve(source), "")
    else:
        with model_folder(text) as folder:
            yield FoundModel(kind, folder, "")


@contextmanager
def _find_package(text: str) -> Iterator[FoundModel]:
    name, version, choice = parse_package(text.removeprefix("pip:"))
    installed = installed_package(name, version)
    if installed is not None:
        kind = kind_of([f.as_posix() for f in installed.files or []], choice)
    elif (kept_folder(name, version) / "RECORD").is_file():
        kind = Kind.GGUF
    else:
        with downloaded_wheel(name, version) as wheel:
            kind = kind_of(_names_in(wheel), choice)
            if kind is Kind.GGUF:
                yield FoundModel(kind, keep_wheel(wheel, name, version, choice), name)
            else:
                yield FoundModel(kind, unpack(wheel, name), name)
        return
    if kind is Kind.GGUF:
        yield FoundModel(kind, resolve(text), name)
        return
    with model_folder(text) as folder:
        yield FoundModel(kind, folder, name)


def _names_in(wheel: Path) -> Collection[str]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as e:
        raise SourceError(f"the wheel {wheel.name} is damaged: {e}") from e
