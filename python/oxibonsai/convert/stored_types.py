"""How a parameter's values become a tensor's bytes: exactly where the type is for that, else rounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import Bytes, Floats
from oxibonsai.checkpoint.packs.exact_blocks import EXACT_TYPES, encode_exactly
from oxibonsai.quantize.blocks import Loss, Matrix, encode_matrix
from oxibonsai.quantize.weight_types import type_named

_EXPONENT = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
_CHECKED = 1 << 20  # numbers at once


def are_finite(bits: npt.NDArray[np.unsignedinteger], type_name: str) -> bool:
    """Return whether floats are neither infinite nor NaN; ``bits`` are integers of their size."""
    flat = bits.reshape(-1)
    mask = flat.dtype.type(_EXPONENT[type_name])
    slabs = (flat[i : i + _CHECKED] for i in range(0, flat.size, _CHECKED))
    return all(((slab & mask) != mask).all() for slab in slabs)


def encode(values: Floats, type_name: str, where: str) -> Bytes:
    """Do what :func:`encode_measured` does; return the bytes alone."""
    return encode_measured(values, type_name, where)[0]


def encode_measured(
    values: Floats, type_name: str, where: str, *, doubles: bool = False, threads: int = 1
) -> tuple[Bytes, Loss]:
    """Return a tensor's bytes of values, and what is lost.

    Floats are rounded to nearest even, binary and ternary types hold the values exactly, the others
    are as ``oxibonsai quantize`` makes them.

    Args:
        values: The tensor.
        type_name: Of a type, in any case.
        where: Names the tensor in errors.
        doubles: Whether a two-bit group may hold +2s too, which its fourth code means.
        threads: Rows are shared out among so many.

    Raises:
        FormatError: A value is not finite or too large, or a group does not fit the type.
    """
    if type_name in EXACT_TYPES:
        kind = EXACT_TYPES[type_name]
        if doubles and type_name in ("q2_0_g64", "pq2_0"):
            kind = replace(kind, multiples=(*kind.multiples, 2))
        return encode_exactly(values, kind, where, type_name), Loss()
    table = values.reshape(-1, values.shape[-1])
    matrix = Matrix(where, *table.shape, lambda first, last: table[first:last])
    with ThreadPoolExecutor(threads) as pool:
        return encode_matrix(matrix, type_named(type_name), pool)
