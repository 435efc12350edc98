"""Writes safetensors front to back, one tensor in memory at a time; the library wants all at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.stored_types import encode
from oxibonsai.files.whole_file import written_whole

Floats = npt.NDArray[np.float32]
# Names of torch's types, and those of `convert` and of safetensors for the same.
DTYPES = {"float32": ("f32", "F32"), "float16": ("f16", "F16"), "bfloat16": ("bf16", "BF16")}


@dataclass(frozen=True)
class PackedRows:
    """Rows of a matrix as the file stores them.

    Attributes:
        quant_type: Their type.
        blocks: [rows, bytes of a row]; of the file's mapping where rows lie there in the same order.
    """

    quant_type: str
    blocks: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Exported:
    """A parameter to write; ``values`` reads it when its turn comes.

    Attributes:
        name: In the folder.
        shape: Slowest axis first.
        values: Reads it as float32.
        packed: Reads it as it is stored; None where it is no matrix of whole rows of the file.
        tensors: Names of the file's tensors that it is made of.
    """

    name: str
    shape: tuple[int, ...]
    values: Callable[[], Floats]
    packed: Callable[[], PackedRows] | None = None
    tensors: tuple[str, ...] = ()


def write_safetensors(path: Path, tensors: list[Exported], dtype: str) -> None:
    """Write a file that appears under its name when it is complete.

    Args:
        path: The file.
        tensors: In the order of the file.
        dtype: Of matrices; vectors stay float32.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in tensors:
        own, stored = DTYPES[_dtype(tensor, dtype)]
        last = at + int(np.prod(tensor.shape)) * (4 if own == "f32" else 2)
        header[tensor.name] = {
            "dtype": stored,
            "shape": list(tensor.shape),
            "data_offsets": [at, last],
        }
        at = last
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    with written_whole(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            own, _ = DTYPES[_dtype(tensor, dtype)]
            values = np.atleast_1d(tensor.values())  # one number may have no axis
            file.write(encode(values, own, f"{path}: {tensor.name}").tobytes())


def _dtype(tensor: Exported, dtype: str) -> str:
    return dtype if len(tensor.shape) > 1 else "float32"
