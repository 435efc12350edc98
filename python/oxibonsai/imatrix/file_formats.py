"""Files of importance matrices: GGUF's, the older one of llama.cpp, and whichever of the two a file has."""

from __future__ import annotations

import mmap
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
            entries[weight] = _gguf_entry(file, weight)
    if not entries:
        raise FormatError(f"{path} holds no sums of inputs (tensors NAME{_SUMS})")
    return Imatrix(entries, _datasets(file), _count(file, _CHUNK_COUNT), _count(file, _CHUNK_SIZE))


def _gguf_entry(file: _core.GgufFile, weight: str) -> Entry:
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
    """Raise FormatError where a value can't be a sum of squares or a count."""
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


_INT_BYTES = 4
_LEAST_ENTRY_BYTES = 4 * _INT_BYTES + 1  # a name of one byte, one value


class _Cursor:
    """Takes a file's bytes in order, never more than there are."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def fail(self, what: str) -> FormatError:
        return FormatError(
            f"{self._path} is no importance matrix, or a damaged one: {what} (byte {self._at}, "
            f"{self.left} left)"
        )

    def take(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise self.fail(f"{what} needs {size} bytes")
        self._at += size
        return self._data[self._at - size : self._at]

    def integer(self, what: str, least: int, most: int) -> int:
        """Return a number that must be within what the rest of the file has room for."""
        value = int.from_bytes(self.take(_INT_BYTES, what), "little", signed=True)
        if not least <= value <= most:
            self._at -= _INT_BYTES
            raise self.fail(f"{what} is {value}, not {least} to {most}")
        return value

    def text(self, what: str, least: int) -> str:
        size = self.integer(f"the length of {what}", least, max(self.left - _INT_BYTES, 0))
        try:
            return self.take(size, what).decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.fail(f"{what} is no UTF-8 text") from e

    def floats(self, what: str) -> Values:
        most = max((self.left - _INT_BYTES) // 4, 0)
        count = self.integer(f"the number of {what}", 1, most)
        return np.frombuffer(self.take(4 * count, what), "<f4").astype(np.float32)


def read_legacy(path: Path) -> Imatrix:
    """Return an importance matrix in the older form; a weight's experts are one run of columns.

    Raises:
        FormatError: The file is damaged or something else.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(path, data)
        number = cursor.integer("the number of entries", 1, cursor.left // _LEAST_ENTRY_BYTES)
        entries: dict[str, Entry] = {}
        for i in range(number):
            name = cursor.text(f"the name of entry {i}", 1)
            if name in entries:
                raise cursor.fail(f"{name} is there twice")
            entries[name] = _legacy_entry(cursor, name, path)
        runs, datasets = 0, tuple[str, ...]()
        if cursor.left:
            runs = cursor.integer("the number of runs", 0, 2**31 - 1)
            text = cursor.text("the name of the text", 0)
            datasets = (text,) if text else ()
        if cursor.left:
            raise cursor.fail("there are bytes after the end")
    return Imatrix(entries, datasets, chunk_count=runs)


def _legacy_entry(cursor: _Cursor, name: str, path: Path) -> Entry:
    runs = cursor.integer(f"the runs of {name}", 0, 2**31 - 1)
    values = cursor.floats(f"values of {name}")
    refuse_impossible(values, f"{path}: {name}")
    # llama.cpp takes values of no run as they are.
    return Entry(values[None, :], np.array([max(runs, 1)], np.float32))


def read_imatrix(path: str | os.PathLike[str]) -> Imatrix:
    """Return the importance matrix that oxibonsai or llama.cpp wrote: GGUF, or the older .dat.

    Raises:
        FormatError: The file can't be read, is damaged or is something else.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if not start:
            raise FormatError(f"{path} is empty: it is no importance matrix")
        matrix = read_gguf(path) if start == b"GGUF" else read_legacy(path)
    except OSError as e:
        raise FormatError(f"cannot read the importance matrix {path}: {e.strerror}") from e
    _check_means(matrix, path)
    return matrix


def _check_means(matrix: Imatrix, path: Path) -> None:
    """Sum and counts may be finite, and their ratio not."""
    for name, entry in matrix.entries.items():
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(entry.importance()).all())
        if not finite:
            raise FormatError(f"{path}: {name} has sums that are too large for their counts")
