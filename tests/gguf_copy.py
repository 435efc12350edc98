"""Copies a GGUF file with keys and tensors replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

_F32 = 0  # GGUF's type id


def copy(
    source: Path,
    target: Path,
    *,
    keys: dict[str, tuple[Any, str]] | None = None,
    tensors: dict[str, tuple[int, npt.NDArray[Any]]] | None = None,
    more: dict[str, npt.NDArray[np.float32]] | None = None,
    only: set[str] | None = None,
    names: dict[str, str] | None = None,
    without: tuple[str, ...] = (),
) -> None:
    """Writes ``target``; a tensor is replaced by a GGUF type id and its blocks, ``more`` are added.

    Of the source's tensors all are taken, or those named in ``only``; but keys and tensors ``without``.
    Those in ``names`` get other names.
    """
    file = _core.GgufFile(str(source))
    found = {k: (file.get(k), type_of(file, k)) for k in file.keys()}  # noqa: SIM118 - not a dict
    found = {k: v for k, v in found.items() if k not in without}
    writer = _core.GgufWriter(target.open("wb"))
    for key, (value, value_type) in {**found, **(keys or {})}.items():
        writer.add_metadata(key, value, value_type)
    contents = []
    for tensor in file.tensors:
        if (only is not None and tensor.name not in only) or tensor.name in without:
            continue
        whole = (tensor.gguf_id, file.tensor_bytes(tensor.name))
        gguf_id, blocks = (tensors or {}).get(tensor.name, whole)
        contents.append(np.ascontiguousarray(blocks).reshape(-1).view(np.uint8))
        name = (names or {}).get(tensor.name, tensor.name)
        writer.add_tensor(name, tensor.shape, gguf_id, contents[-1].size)
    for name, values in (more or {}).items():
        writer.add_tensor(name, values.shape, _F32, values.nbytes)
        contents.append(values.reshape(-1).view(np.uint8))
    writer.write_header()
    for blocks in contents:
        writer.write_tensor(blocks)
    writer.close()


def type_of(file: _core.GgufFile, key: str) -> str:
    """Return the type of a key's value as the writer takes it."""
    value = file.get(key)
    if isinstance(value, list):
        return "arr[bool]" if isinstance(value[0], bool) else "arr[str]"
    if isinstance(value, np.ndarray):
        return "arr[i32]" if value.dtype.kind in "iu" else "arr[f32]"
    return str(file.metadata_type(key))
