"""Packs values that are binary or ternary already into blocks that hold them exactly.

Layouts: docs/formats.md. Nothing is rounded: a group that a type can't hold is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import Bytes, Floats
from oxibonsai.errors import FormatError

_Codes = npt.NDArray[np.uint8]  # [groups, group]


@dataclass(frozen=True)
class ExactType:
    """A type of GGUF whose weights are a scale times few values.

    Attributes:
        group: Weights that share a scale.
        nbytes: Of a block.
        multiples: What the scale is multiplied with, by code.
        pack: Blocks of codes and of scales, float16 [groups].
    """

    group: int
    nbytes: int
    multiples: tuple[int, ...]
    pack: Callable[[_Codes, npt.NDArray[np.float16]], Bytes]


def encode_exactly(values: Floats, kind: ExactType, where: str, type_name: str) -> Bytes:
    """Return a matrix as blocks, of which each decodes to the very same values.

    Args:
        values: [rows, cols].
        kind: The type.
        where: Names the tensor in errors.
        type_name: Names the type in errors.

    Raises:
        FormatError: Rows are no multiple of the group, or a group holds other values; the first one
            is named by its index, counted along the rows.
    """
    if values.ndim != 2 or values.shape[1] % kind.group != 0:
        raise FormatError(
            f"{where} of shape {values.shape} has rows that groups of {kind.group} do not divide, which "
            f"{type_name} needs"
        )
    groups = values.reshape(-1, kind.group)
    size = np.abs(groups)
    # The scale is the smallest size above zero; where all are zero, zero.
    scale = np.where(size > 0, size, np.inf).min(axis=1)
    scale[~(size > 0).any(axis=1)] = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        scales = scale.astype(np.float16)
        exact = (scales.astype(np.float32) == scale) & np.isfinite(scales)
        codes = np.zeros(groups.shape, np.uint8)
        held = np.zeros(groups.shape, np.bool_)
        # Zero comes last, so that it is what a group of zeros holds; without one, that is +s.
        for code, multiple in sorted(enumerate(kind.multiples), key=lambda m: m[1] == 0):
            same = groups == scale[:, None] * np.float32(multiple)
            codes[same] = code
            held |= same
    if not (good := exact & held.all(axis=1)).all():
        raise FormatError(_refusal(groups, int(good.argmin()), kind, where, type_name))
    return kind.pack(codes, scales).reshape(-1)


def _refusal(groups: Floats, index: int, kind: ExactType, where: str, type_name: str) -> str:
    wanted = ", ".join({0: "0", 1: "+s", -1: "-s"}.get(m, f"{m:+d}s") for m in kind.multiples)
    some = ", ".join(f"{v:.6g}" for v in np.unique(groups[index])[:4])
    return (
        f"{where}: group {index} (weights {index * kind.group} to {(index + 1) * kind.group - 1}) is not "
        f"exactly {{{wanted}}} with a float16 s but holds {some}: {type_name} can't hold it without loss"
    )


def _two_bit_fields(codes: _Codes) -> Bytes:
    """Pack four weights into a byte, the first into the lowest bits."""
    fields = codes.reshape(len(codes), -1, 4) << np.array([0, 2, 4, 6], np.uint8)
    packed: Bytes = np.bitwise_or.reduce(fields, axis=2)
    return packed


def _scale_bytes(scales: npt.NDArray[np.float16]) -> Bytes:
    return scales.astype("<f2").view(np.uint8).reshape(-1, 2)


def _pack_signs(codes: _Codes, scales: npt.NDArray[np.float16]) -> Bytes:
    """Return the scale, then a bit a weight, the lowest first."""
    return np.hstack([_scale_bytes(scales), np.packbits(codes, axis=1, bitorder="little")])


def _pack_two_bits(codes: _Codes, scales: npt.NDArray[np.float16]) -> Bytes:
    """Return the scale, then two bits a weight."""
    return np.hstack([_scale_bytes(scales), _two_bit_fields(codes)])


_CHUNKS = ((0, 16, 5), (80, 8, 5), (120, 2, 4))  # first weight, bytes, ternary digits a byte


def _pack_base_three(codes: _Codes, scales: npt.NDArray[np.float16]) -> Bytes:
    """Pack five ternary digits into a byte, the first the most significant, then the scale.

    A byte holds its number as a fraction of 243, rounded up, so that digits come out by multiplying.
    """
    parts = []
    for first, width, digits in _CHUNKS:
        chunk = codes[:, first : first + width * digits].reshape(-1, digits, width)
        places = 3 ** np.arange(4, 4 - digits, -1, dtype=np.int64)  # of each digit, out of five
        number = (chunk * places[:, None]).sum(axis=1)
        parts.append(((number * 256 + 242) // 243).astype(np.uint8))
    return np.hstack([*parts, _scale_bytes(scales)])


EXACT_TYPES = {
    "q1_0": ExactType(128, 18, (-1, 1), _pack_signs),
    "q2_0_g64": ExactType(64, 18, (-1, 0, 1), _pack_two_bits),
    "pq2_0": ExactType(128, 34, (-1, 0, 1), _pack_two_bits),
    "ptq1_0": ExactType(128, 28, (-1, 0, 1), _pack_base_three),
}
