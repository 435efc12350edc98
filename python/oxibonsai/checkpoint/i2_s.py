"""BitNet's I2_S: ternary codes and one scale a tensor, read as TQ2_0 or PQ2_0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError, UnsupportedError

I2_S = "I2_S"
_SUPERBLOCK = 128  # weights in 32 bytes
_SCALE_BYTES = 32  # a binary32 scale, padded
_SHIFTS = np.array([6, 4, 2, 0], np.uint8)[:, None]  # of the four quarters of a superblock
_LARGEST = float(np.finfo(np.float16).max)
_SMALLEST = float(np.finfo(np.float16).smallest_normal)
_TQ2_0, _PQ2_0 = (
    next(t for t in _core.quant_types() if t["name"] == name) for name in ("TQ2_0", "Q2_0_g128")
)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class I2sTensor:
    """A tensor of I2_S as one of TQ2_0, or of PQ2_0 where rows are no multiple of 256.

    Codes are kept; each block gets the tensor's scale, rounded to float16.

    Attributes:
        stored: As the file has it.
        path: The file, which errors name.
    """

    stored: _core.TensorInfo
    path: str

    @property
    def name(self) -> str:
        """GGUF's name."""
        return self.stored.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest dimension first."""
        return self.stored.shape

    @property
    def quant_type(self) -> str:
        """The type of the blocks that :meth:`blocks` returns."""
        return str(self._type["name"])

    @property
    def decodable(self) -> bool:
        """Whether this version knows the format."""
        return True

    @property
    def gguf_id(self) -> int:
        """GGUF's number of :attr:`quant_type`."""
        return int(self._type["gguf_id"])

    @property
    def nbytes(self) -> int:
        """Size of the blocks in bytes."""
        return math.prod(self.shape) // int(self._type["group"]) * int(self._type["bytes"])

    @property
    def _type(self) -> dict[str, Any]:
        return _TQ2_0 if self.shape[-1] % int(_TQ2_0["group"]) == 0 else _PQ2_0

    def blocks(self, stored: Bytes) -> Bytes:
        """Return the tensor's blocks.

        Args:
            stored: The tensor's bytes in the file.

        Raises:
            FormatError: The scale is negative or not finite, or a code stands for no weight.
            UnsupportedError: A float16 cannot hold the scale.
        """
        where = f"{self.path}: the scale of tensor {self.name} of type I2_S"
        scale = ternary_scale(float(stored[-_SCALE_BYTES:][:4].view("<f4")[0]), where)
        codes = stored[:-_SCALE_BYTES].reshape(-1, _SUPERBLOCK // 4)
        if has_code_3(codes):
            raise FormatError(
                f"{self.path}: tensor {self.name} of type I2_S holds the code 3, which stands for no "
                "weight: the file is damaged, or written in another layout of I2_S"
            )
        quarters = (codes[:, None] >> _SHIFTS & 3).astype(np.uint8, copy=False)
        if self._type is _TQ2_0:
            return _with_scale(_packed(quarters, axis=1).reshape(-1, 64), scale, first=False)
        neighbours = quarters.reshape(-1, _SUPERBLOCK // 4, 4)
        return _with_scale(_packed(neighbours, axis=2), scale, first=True)


def has_code_3(codes: Bytes) -> bool:
    """Return whether one of the four codes in a byte is 3, which stands for no ternary weight."""
    return bool((codes & codes >> 1 & 0x55).any())


def ternary_scale(scale: float, where: str) -> np.float16:
    """Return the scale of a ternary tensor as blocks hold it, off by 2^-12 of its value at most.

    Args:
        scale: As stored.
        where: What errors call it.

    Raises:
        FormatError: It is negative or not finite.
        UnsupportedError: A float16 cannot hold it that closely.
    """
    if not (math.isfinite(scale) and scale >= 0):
        raise FormatError(f"{where} is {scale}: the file is damaged")
    if scale != 0 and not _SMALLEST <= scale <= _LARGEST:
        raise UnsupportedError(f"{where} is {scale}, outside the range of float16")
    return np.float16(scale)


def _packed(codes: Bytes, axis: int) -> Bytes:
    """Return four codes along an axis as a byte, the first in its lowest bits."""
    first, second, third, fourth = np.moveaxis(codes, axis, 0)
    found: Bytes = first | second << 2 | third << 4 | fourth << 6
    return found


def _with_scale(codes: Bytes, scale: np.float16, *, first: bool) -> Bytes:
    """Return blocks of codes and a scale, which comes first or last."""
    scales = np.broadcast_to(np.array([scale], "<f2").view(np.uint8), (len(codes), 2))
    return np.concatenate([scales, codes] if first else [codes, scales], axis=1).reshape(-1)
