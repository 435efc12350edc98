"""Importance matrices as GGUF files: two tensors for each weight, and where they come from.

``NAME.in_sum2`` [matrices, cols] are the sums of squared inputs of the weight NAME, ``NAME.counts``
[matrices, 1] how many inputs were summed; both float32.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from oxibonsai import _core
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.whole_file import written_whole
from oxibonsai.imatrix.matrix import Entry, Imatrix, Values

_SUMS, _COUNTS = ".in_sum2", ".counts"
_KIND, _DATASETS = "general.type", "imatrix.datasets"
_CHUNK_COUNT, _CHUNK_SIZE = "imatrix.chunk_count", "imatrix.chunk_size"
_F32 = 0  # GGUF's id


def read_gguf(path: Path) -> Imatrix:
    """Return a GGUF file's importance matrix; tensors of other names are left alone.

    Raises:
        FormatError: The file is damaged, is no importance matrix, or holds what none can.
    """
    file = _core.GgufFile(str(path))
    kind = file.get(_KIND)
    if not isinstance(kind, str) or kind != "imatrix":
        raise FormatError(
            f"{path} is no importance matrix: its {_KIND} is {kind!r}, not 'imatrix'; name the file "
            "that oxibonsai imatrix or llama-imatrix wrote"
        )
    names = {t.name for t in file.tensors}
    entries = {}
    for tensor in file.tensors:
        for own, other in ((_SUMS, _COUNTS), (_COUNTS, _SUMS)):
            weight = tensor.name.removesuffix(own)
            if tensor.name.endswith(own) and weight + other not in names:
                raise FormatError(f"{path} has {tensor.name} but no {weight}{other}")
        if tensor.name.endswith(_SUMS):
            weight = tensor.name.removesuffix(_SUMS)
            entries[weight] = _entry(file, weight)
    if not entries:
        raise FormatError(f"{path} holds no sums of inputs (tensors NAME{_SUMS})")
    return Imatrix(entries, _datasets(file), _count(file, _CHUNK_COUNT), _count(file, _CHUNK_SIZE))


def _entry(file: _core.GgufFile, weight: str) -> Entry:
    counts = _floats(file, weight + _COUNTS).reshape(-1)
    sums = _floats(file, weight + _SUMS)
    matrices = sums.size // sums.shape[-1] if sums.shape[-1] else 0
    if matrices == 0 or counts.size != matrices:
        raise FormatError(
            f"{file.path}: {weight}{_SUMS} has shape {sums.shape}, which needs {matrices} counts (at "
            f"least 1), but {weight}{_COUNTS} has {counts.size}"
        )
    return Entry(sums.reshape(matrices, -1), counts)


def _floats(file: _core.GgufFile, name: str) -> Values:
    tensor = file.tensor(name)
    if tensor.quant_type != "F32":
        raise FormatError(f"{file.path}: {name} is of type {tensor.quant_type}, not F32")
    values = file.tensor_bytes(name).view("<f4").astype(np.float32).reshape(tensor.shape)
    refuse_impossible(values, f"{file.path}: {name}")
    return values


def refuse_impossible(values: Values, where: str) -> None:
    """FormatError where a value can't be a sum of squares or a count."""
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        at = int(good.reshape(-1).argmin())
        raise FormatError(
            f"{where} has {values.reshape(-1)[at]} at index {at}: sums of squares and counts are "
            "finite and not negative"
        )


def _datasets(file: _core.GgufFile) -> tuple[str, ...]:
    names = file.get(_DATASETS, [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise FormatError(f"{file.path}: {_DATASETS} is no list of texts")
    return tuple(names)


def _count(file: _core.GgufFile, key: str) -> int:
    value = file.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise FormatError(f"{file.path}: {key} is {value!r}, not a count")
    return value


def write_imatrix(imatrix: Imatrix, path: str | os.PathLike[str]) -> None:
    """Write the GGUF form, which llama-quantize reads too; it appears when it is complete.

    Args:
        imatrix: With at least one entry.
        path: Replaced where it exists.

    Raises:
        RequestError: There is no entry.
    """
    if not imatrix.entries:
        raise RequestError(
            "an importance matrix without entries says nothing: there is none to write"
        )
    with written_whole(Path(path)) as sink:
        writer = _core.GgufWriter(sink)
        writer.add_metadata(_KIND, "imatrix", "str")
        writer.add_metadata(_DATASETS, list(imatrix.datasets), "arr[str]")
        writer.add_metadata(_CHUNK_COUNT, imatrix.chunk_count, "u32")
        writer.add_metadata(_CHUNK_SIZE, imatrix.chunk_size, "u32")
        arrays = []
        for name, entry in imatrix.entries.items():
            matrices, cols = entry.squares.shape
            for suffix, values, width in ((_SUMS, entry.squares, cols), (_COUNTS, entry.counts, 1)):
                shape = (width,) if matrices == 1 else (matrices, width)
                writer.add_tensor(name + suffix, shape, _F32, values.size * 4)
                arrays.append(values)
        writer.write_header()
        for values in arrays:
            data = np.ascontiguousarray(values, "<f4").view(np.uint8)
            writer.write_tensor(data.reshape(-1))
        writer.close()
