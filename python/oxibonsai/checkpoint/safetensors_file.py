"""Safetensors: what a file holds and where; checked by the `safetensors` library, read in place.

numpy has neither bfloat16 nor eight-bit floats, so the library's own reading can't be used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        dtype: Safetensors' name, like ``"BF16"``.
        first, last: Where its bytes lie in the file.
        file: The file, mapped; None for bytes that are in no file of their own.
    """

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int
    file: _core.MappedFile | None

    def raw(self) -> npt.NDArray[np.uint8]:
        """Return the bytes: the file's own, read-only.

        Whoever has used them asks :meth:`check_unchanged`.
        """
        assert self.file is not None  # a subclass has its bytes elsewhere
        return np.frombuffer(memoryview(self.file), np.uint8, self.last - self.first, self.first)

    def read(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the bytes as numbers of a numpy type of the same size, in the tensor's shape."""
        return self.raw().view(dtype).reshape(self.shape)

    def check_unchanged(self) -> None:
        """Raise `FormatError` if the file has been written to since it was opened."""
        if self.file is not None:
            self.file.check_unchanged()

    def release(self) -> None:
        """Take the bytes out of memory; the next look at them reads the file again."""
        if self.file is not None:
            self.file.release(self.first, self.last)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file, by name.

    Raises:
        FormatError: The file can't be read, or breaks its format: the library checks that the header
            fits, that shapes, types and offsets agree, and that tensors neither overlap nor leave
            gaps or the file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass
        file = _core.MappedFile(str(path))
        data = memoryview(file)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8 : 8 + length]))
    except (OSError, SafetensorError, ValueError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    header.pop("__metadata__", None)
    start = 8 + length
    found = {}
    for name, entry in header.items():
        first, last = (start + offset for offset in entry["data_offsets"])
        found[name] = StoredTensor(
            path, name, entry["dtype"], tuple(entry["shape"]), first, last, file
        )
    file.check_unchanged()
    return found
