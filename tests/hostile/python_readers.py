"""The readers written in Python, as functions of one file's bytes, which may cost one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import packed_folders
import safetensors_files
from mutations import refused

from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.onnx_parameters import onnx_parameters
from oxibonsai.checkpoint.safetensors_file import read_header
from oxibonsai.convert.language_model import convert
from oxibonsai.imatrix import read_imatrix

Read = Callable[[bytes], None]


def _file(path: Path, read: Callable[[], Any]) -> Read:
    def once(data: bytes) -> None:
        path.write_bytes(data)
        refused(read, repr(data))

    return once


def _imatrix(folder: Path) -> Read:
    path = folder / "m.imatrix"

    def read() -> None:
        found = read_imatrix(path)
        for name in found.entries:
            assert np.isfinite(found.importance(name)).all()

    return _file(path, read)


def _safetensors(folder: Path) -> Read:
    path = folder / "model.safetensors"
    return _file(path, lambda: read_header(path))


def _index(folder: Path) -> Read:
    """Of shards, of which one is there."""
    (folder / "config.json").write_text("{}")
    (folder / "a.safetensors").write_bytes(safetensors_files.VALID)
    path = folder / "model.safetensors.index.json"
    return _file(path, lambda: ModelFolder(folder).parameters)


def _config(folder: Path) -> Read:
    packed_folders.good("mlx").write(folder)
    return _file(folder / "config.json", lambda: convert(folder, folder / "m.gguf"))


def _tokenizer(folder: Path) -> Read:
    packed_folders.good("mlx").write(folder)
    path = folder / "tokenizer.json"
    return _file(path, lambda: convert(folder, folder / "m.gguf", weights=False))


def _onnx(folder: Path) -> Read:
    (folder / "data.bin").write_bytes(bytes(4096))
    path = folder / "model.onnx"

    def read() -> None:
        for parameter in onnx_parameters(path, 1, tied=False).values():
            parameter.values()

    return _file(path, read)


READERS: dict[str, Callable[[Path], Read]] = {
    "config": _config,
    "imatrix": _imatrix,
    "index": _index,
    "onnx": _onnx,
    "safetensors": _safetensors,
    "tokenizer": _tokenizer,
}
