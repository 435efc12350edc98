"""Safetensors: what a file holds and where; checked by the `safetensors` library, read by offset.

numpy has neither bfloat16 nor eight-bit floats, so the library's own reading can't be used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import FormatError


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        dtype: Safetensors' name, like ``"BF16"``.
        first, last: Where its bytes lie in the file.
    """

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int

    def read(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the bytes as numbers of a numpy type of the same size, in the tensor's shape."""
        count = (self.last - self.first) // np.dtype(dtype).itemsize
        values = np.fromfile(self.path, dtype=dtype, count=count, offset=self.first)
        if values.size != count:
            raise FormatError(f"{self.path} became shorter while it was read")
        return values.reshape(self.shape)


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
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (OSError, SafetensorError, ValueError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    header.pop("__metadata__", None)
    start = 8 + length
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        shape = tuple(entry["shape"])
        found[name] = StoredTensor(path, name, entry["dtype"], shape, start + first, start + last)
    return found
