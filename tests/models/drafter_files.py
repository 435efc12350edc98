"""Files of small random drafters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

_I64 = 27


def write(
    path: Path,
    architecture: str,
    keys: Mapping[str, tuple[Any, str]],
    tensors: Mapping[str, npt.NDArray[Any]],
) -> Path:
    """Write a file; keys that begin with ``tokenizer`` are whole, others the architecture's."""
    writer = _core.GgufWriter(path.open("wb"))
    writer.add_metadata("general.architecture", architecture, "str")
    for key, value in keys.items():
        whole = key if key.startswith("tokenizer.") else f"{architecture}.{key}"
        writer.add_metadata(whole, *value)
    for name, values in tensors.items():
        kind = _I64 if values.dtype == np.int64 else 0
        writer.add_tensor(name, values.shape, kind, values.nbytes)
    writer.write_header()
    for values in tensors.values():
        writer.write_tensor(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    writer.close()
    return path
