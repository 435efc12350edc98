"""MXFP4 as gpt-oss's folders hold it: matrices of all experts, codes and scales apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.float_types import Floats
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError

_GROUP = 32
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Mxfp4Parameter:
    """Two codes a byte, the earlier weight in the low half, and an exponent for each 32 of a row."""

    codes: StoredTensor  # [experts, rows, groups, 16]
    scales: StoredTensor  # [experts, rows, groups]

    exact_type = "mxfp4"

    @property
    def shape(self) -> tuple[int, ...]:
        """[experts, rows, columns]."""
        *outer, groups = self.scales.shape
        return (*outer, groups * _GROUP)

    def blocks(self) -> _Bytes:
        """Return GGUF's blocks of 17 bytes: [experts, rows, bytes of a row].

        A block begins with its exponent; then byte j has weight j in its low half and j + 16 in the
        high one.
        """
        packed = self.codes.read("u1").reshape(-1, _GROUP // 2)
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, 2, _GROUP // 2)
        halves = codes[:, 0] | codes[:, 1] << 4
        scales = self.scales.read("u1").reshape(-1, 1)
        blocks = np.concatenate([scales, halves.astype(np.uint8)], axis=1)
        return blocks.reshape(*self.scales.shape[:2], -1)

    def values(self) -> Floats:
        """Return all of it as float32."""
        found: Floats = _core.decode("MXFP4", self.blocks().reshape(-1)).reshape(self.shape)
        return found


def mxfp4_parameter(codes: StoredTensor, scales: StoredTensor) -> Mxfp4Parameter:
    """Return the parameter that ``NAME_blocks`` and ``NAME_scales`` hold together.

    Raises:
        FormatError: Their types or shapes do not fit.
    """
    fits = len(scales.shape) == 3 and codes.shape == (*scales.shape, _GROUP // 2)
    if not fits or codes.dtype != "U8" or scales.dtype != "U8":
        raise FormatError(
            f"{codes.path}: {codes.name} and {scales.name} have the shapes {codes.shape} and "
            f"{scales.shape}, which are no codes and exponents of MXFP4"
        )
    return Mxfp4Parameter(codes, scales)
