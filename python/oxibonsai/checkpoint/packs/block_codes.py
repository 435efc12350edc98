"""ONNX Runtime's packs of 2, 4 and 8 bits: codes with a scale and a zero point for each block of a row.

Codes lie along a row, the first in the lowest bits of a byte. A weight is ``scale * (code - zero)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import PLAIN, Floats, widened
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

BITS = (2, 4, 8)
_Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BlockParameter:
    """A packed matrix.

    Attributes:
        shape: [rows, cols] of the matrix.
        bits: Of a code.
        block: Weights of a row that share a scale and a zero point; it divides cols.
        zeros: Packed as the codes are, or floats, one a block; None: all are half the codes' range.
        zero_bits: Of a packed zero point.
    """

    stored: StoredTensor
    scales: StoredTensor
    zeros: StoredTensor | None
    shape: tuple[int, int]
    bits: int
    block: int
    zero_bits: int

    @property
    def exact_type(self) -> str:
        """By the bits of a code; Q4_0 where every zero point is 8."""
        if self.bits == 2:
            return "q2_0_g64"
        if self.bits == 8:
            return "q8_0"
        return "q4_0" if (self._zero_points() == 8).all() else "q4_1"

    def codes(self) -> _Codes:
        """Return all codes: [rows, cols]."""
        packed = self.stored.read("u1").reshape(self.shape[0], -1)
        return np.ascontiguousarray(_unpacked(packed, self.bits)[:, : self.shape[1]])

    def affine(self) -> tuple[Floats, Floats]:
        """Return scales and minima, rounded to the float16 that blocks have: [rows, blocks].

        A scale that float16 can't hold within 2^-11 of it stays as it is, and will be refused.
        """
        scales = self._scales()
        with np.errstate(over="ignore", invalid="ignore"):
            halves = scales.astype(np.float16).astype(np.float32)
            close = np.abs(halves - scales) <= np.float32(2**-11) * np.abs(scales)
            scales = np.where(close, halves, scales)
            minima = -self._zero_points() * scales
            if self.exact_type == "q4_1":
                minima = minima.astype(np.float16).astype(np.float32)
        return scales, minima

    def values(self) -> Floats:
        """Return scale times what the code is above the zero point, in float32."""
        scales, zeros = (
            np.repeat(v, self.block, axis=1) for v in (self._scales(), self._zero_points())
        )
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
            found: Floats = scales * (self.codes().astype(np.float32) - zeros)
        return found

    def _scales(self) -> Floats:
        return widened(self.scales).reshape(self.shape[0], -1)

    def _zero_points(self) -> Floats:
        rows, blocks = self.shape[0], self.shape[1] // self.block
        if self.zeros is None:
            return np.full((rows, blocks), 1 << (self.bits - 1), np.float32)
        if self.zeros.dtype != "U8":
            return widened(self.zeros).reshape(rows, blocks)
        packed = self.zeros.read("u1").reshape(rows, -1)
        return _unpacked(packed, self.zero_bits)[:, :blocks].astype(np.float32)


def _unpacked(packed: _Codes, bits: int) -> _Codes:
    """Return the codes [rows, codes] of bytes [rows, bytes]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = packed[:, :, None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(len(packed), -1)


def block_parameter(
    stored: StoredTensor,
    scales: StoredTensor,
    zeros: StoredTensor | None,
    shape: tuple[int, int],
    bits: int,
    block: int,
) -> BlockParameter:
    """Return a packed matrix, once its parts are seen to fit together.

    Raises:
        FormatError: They do not.
        UnsupportedError: Codes have other bits, blocks another size, or the last block is not whole.
    """
    where = f"{stored.path}: {stored.name}"
    rows, cols = shape
    if bits not in BITS:
        raise UnsupportedError(f"{where} is packed with {bits} bits; convert knows 2, 4 and 8")
    if block < 16 or block & (block - 1) or rows < 1 or cols < 1:
        raise FormatError(f"{where} is a matrix {shape} in blocks of {block}")
    if cols % block != 0:
        raise UnsupportedError(
            f"{where} has rows of {cols} weights, no multiple of its blocks of {block}"
        )
    blocks = cols // block
    if stored.dtype != "U8" or _count(stored) != rows * blocks * (block * bits // 8):
        raise FormatError(
            f"{where} is {stored.dtype} {stored.shape}, no {bits}-bit codes of a matrix {shape}"
        )
    if scales.dtype not in PLAIN or _count(scales) != rows * blocks:
        raise FormatError(
            f"{where}: its scales are {scales.dtype} {scales.shape}, not {rows * blocks} floats"
        )
    zero_bits = bits
    if zeros is not None and zeros.dtype == "U8":
        # The tables of ternary models hold their zero points in nibbles.
        fits = [b for b in (bits, 4) if _count(zeros) == rows * -(-blocks * b // 8)]
        if not fits:
            raise FormatError(
                f"{where}: its zero points are bytes {zeros.shape}, not {blocks} of {bits} bits a row"
            )
        zero_bits = fits[0]
    elif zeros is not None and (zeros.dtype not in PLAIN or _count(zeros) != rows * blocks):
        raise FormatError(f"{where}: its zero points are {zeros.dtype} {zeros.shape}")
    return BlockParameter(stored, scales, zeros, shape, bits, block, zero_bits)


def _count(stored: StoredTensor) -> int:
    return (stored.last - stored.first) // {"F32": 4, "U8": 1}.get(stored.dtype, 2)
