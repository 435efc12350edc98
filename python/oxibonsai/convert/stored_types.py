"""How a parameter's values become a tensor's bytes: exactly where the type is for that, else rounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from oxibonsai.convert.exact_blocks import EXACT_TYPES, Bytes, encode_exactly
from oxibonsai.convert.float_types import Floats
from oxibonsai.quantize.blocks import Loss, Matrix, encode_matrix
from oxibonsai.quantize.weight_types import type_named


def encode(values: Floats, type_name: str, where: str) -> Bytes:
    """As :func:`encode_measured`, the bytes alone."""
    return encode_measured(values, type_name, where)[0]


def encode_measured(
    values: Floats, type_name: str, where: str, *, doubles: bool = False, threads: int = 1
) -> tuple[Bytes, Loss]:
    """Values as a tensor's bytes, and what is lost.

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
