"""The older binary form of llama-imatrix (.dat), read only. All integers are int32, little-endian.

Entries: their number; then for each the length of the name, the name, how often the model ran, how
many values, and the values: float32, means of squares times the runs. After them, in files that
have it: the runs in all, the length of the text file's name, the name.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from oxibonsai.errors import FormatError
from oxibonsai.imatrix.gguf_format import refuse_impossible
from oxibonsai.imatrix.matrix import Entry, Imatrix, Values

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
            entries[name] = _entry(cursor, name, path)
        runs, datasets = 0, tuple[str, ...]()
        if cursor.left:
            runs = cursor.integer("the number of runs", 0, 2**31 - 1)
            text = cursor.text("the name of the text", 0)
            datasets = (text,) if text else ()
        if cursor.left:
            raise cursor.fail("there are bytes after the end")
    return Imatrix(entries, datasets, chunk_count=runs)


def _entry(cursor: _Cursor, name: str, path: Path) -> Entry:
    runs = cursor.integer(f"the runs of {name}", 0, 2**31 - 1)
    values = cursor.floats(f"values of {name}")
    refuse_impossible(values, f"{path}: {name}")
    # llama.cpp takes values of no run as they are.
    return Entry(values[None, :], np.array([max(runs, 1)], np.float32))
