"""Metadata in memory, as a GGUF file would hold and give back the same keys."""

from __future__ import annotations

from typing import Any

import numpy as np

# GGUF key -> value, and its type as `_core.GgufWriter.add_metadata` names it.
Metadata = dict[str, tuple[Any, str]]

_NUMBERS = {
    "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "u32": np.uint32,
    "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def as_read(value: Any, value_type: str) -> Any:
    """Return a value as it comes back from a file: rounded, arrays of numbers as numpy's.

    Args:
        value: What would be written.
        value_type: GGUF's name of a type, or ``arr[NAME]``.
    """
    if value_type.startswith("arr["):
        element = value_type[4:-1]
        if element in _NUMBERS:
            with np.errstate(over="ignore"):
                return np.array(list(value), _NUMBERS[element])
        return [as_read(item, element) for item in value]
    if value_type in _NUMBERS:
        with np.errstate(over="ignore"):
            return np.array(value, _NUMBERS[value_type]).item()
    if value_type == "bool":
        return bool(value)
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
