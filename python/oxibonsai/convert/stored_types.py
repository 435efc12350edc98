"""The types that ``convert`` writes: GGUF's numbers, sizes, and how values become bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.exact_blocks import EXACT_TYPES, Bytes, encode_exactly
from oxibonsai.convert.float_types import Floats
from oxibonsai.errors import FormatError


@dataclass(frozen=True)
class StoredType:
    """A type of GGUF.

    Attributes:
        gguf_id: Of a tensor.
        file_type: ``general.file_type`` of a file that is mostly of it; None: llama.cpp has none.
        group, nbytes: Weights and bytes of a block.
    """

    gguf_id: int
    file_type: int | None
    group: int
    nbytes: int


STORED_TYPES = {
    "f32": StoredType(0, 0, 1, 4),
    "f16": StoredType(1, 1, 1, 2),
    "bf16": StoredType(30, 32, 1, 2),
    "q1_0": StoredType(41, 40, 128, 18),
    "q2_0_g64": StoredType(42, 41, 64, 18),
    "pq2_0": StoredType(142, None, 128, 34),
    "ptq1_0": StoredType(143, None, 128, 28),
    # Only for packs of codes that are these already.
    "q4_1": StoredType(3, 3, 32, 20),
    "q8_0": StoredType(8, 7, 32, 34),
}


def encode(values: Floats, type_name: str, where: str, *, doubles: bool = False) -> Bytes:
    """Values as a tensor's bytes: floats rounded to nearest even, the other types exactly.

    Args:
        values: The tensor.
        type_name: One of ``STORED_TYPES``.
        where: Names the tensor in errors.
        doubles: Whether a two-bit group may hold +2s too, which its fourth code means.

    Raises:
        FormatError: A value is not finite or too large, or a group does not fit the type.
    """
    if type_name in EXACT_TYPES:
        kind = EXACT_TYPES[type_name]
        if doubles and type_name in ("q2_0_g64", "pq2_0"):
            kind = replace(kind, multiples=(*kind.multiples, 2))
        return encode_exactly(values, kind, where, type_name)
    finite = bool(np.isfinite(values).all())
    if finite and type_name == "bf16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        # Half of what is cut off, so that ties go to the even one; finite values can't overflow it.
        halves = ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16).astype("<u2")
        finite = bool(((halves & 0x7F80) != 0x7F80).all())
        return _bytes(halves, finite, type_name, where)
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(values, dtype="<f2" if type_name == "f16" else "<f4")
    return _bytes(rounded, finite and bool(np.isfinite(rounded).all()), type_name, where)


def _bytes(array: npt.NDArray[Any], finite: bool, type_name: str, where: str) -> Bytes:
    if not finite:
        raise FormatError(
            f"{where} holds values that {type_name} can't; they are not finite, or too large for f16: "
            "f32 is the type that holds all"
        )
    flat: Bytes = array.reshape(-1).view(np.uint8)
    return flat
