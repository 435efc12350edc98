"""AutoAWQ's and GPTQ's four-bit packs: codes with a scale and a zero point for each group.

Both store a matrix the other way round, [in, out], in int32 words of eight codes. ``NAME.qzeros``
[in / group, out / 8] and ``NAME.scales`` [in / group, out] belong to ``NAME.qweight``: AWQ's is
[in, out / 8] with the columns of a word in an order of their own, GPTQ's [in / 8, out]. A weight is
``scale * (code - zero)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import PLAIN, Floats, widened
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of each nibble of a word, the lowest first
_PLAIN_ORDER = tuple(range(8))
METHODS = ("awq", "gptq")


@dataclass(frozen=True)
class ZeroPointParameter:
    """A packed matrix.

    Attributes:
        method: ``"awq"`` or ``"gptq"``.
        zero_offset: Added to the stored zero points: 1 in GPTQ's first format.
    """

    stored: StoredTensor
    zeros: StoredTensor
    scales: StoredTensor
    method: str
    zero_offset: int

    exact_type = "q4_1"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the matrix's shape, [out, in]."""
        first, second = self.stored.shape
        return (second * 8, first) if self.method == "awq" else (second, first * 8)

    def codes(self) -> npt.NDArray[np.uint8]:
        """Return all codes: [out, in]."""
        words = self.stored.read("<u4")
        if self.method == "awq":
            return np.ascontiguousarray(_nibbles(words, _AWQ_ORDER).T)
        return np.ascontiguousarray(_nibbles(words.T, _PLAIN_ORDER))

    def _zero_points(self) -> npt.NDArray[np.float32]:
        order = _AWQ_ORDER if self.method == "awq" else _PLAIN_ORDER
        zeros = (_nibbles(self.zeros.read("<u4"), order) + self.zero_offset) & 15
        return zeros.T.astype(np.float32)

    def affine(self) -> tuple[Floats, Floats]:
        """Return scales, and minima rounded to the float16 that Q4_1 has: [out, groups]."""
        scales = widened(self.scales).T
        with np.errstate(over="ignore", invalid="ignore"):  # refused with their group
            minima = (-self._zero_points() * scales).astype(np.float16).astype(np.float32)
        return np.ascontiguousarray(scales), np.ascontiguousarray(minima)

    def values(self) -> Floats:
        """Return scale times what the code is above the zero point, in float32."""
        group = self.shape[1] // self.scales.shape[0]
        spread = (
            np.repeat(v, group, axis=1) for v in (widened(self.scales).T, self._zero_points())
        )
        scales, zeros = spread
        with np.errstate(over="ignore", invalid="ignore"):  # refused by their tensor
            found: Floats = scales * (self.codes().astype(np.float32) - zeros)
        return found


def _nibbles(words: npt.NDArray[np.uint32], order: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Return the codes of words [rows, words]; nibble i is the code at ``order[i]`` of a word's eight."""
    shifts = np.argsort(order).astype(np.uint32) * np.uint32(4)
    codes = (words[:, :, None] >> shifts & np.uint32(15)).astype(np.uint8)
    return codes.reshape(words.shape[0], -1)


def zero_point_parameter(
    module: str, tensors: dict[str, StoredTensor], quantization: dict[str, Any]
) -> ZeroPointParameter:
    """Return the matrix ``module.weight``, from ``module.qweight`` and what belongs to it.

    Raises:
        FormatError: A part is missing, or shapes do not fit together.
        UnsupportedError: The method is neither, or codes have other bits, or groups are not in order.
    """
    stored, method = tensors[f"{module}.qweight"], quantization.get("quant_method")
    bits = quantization.get("bits", quantization.get("w_bit"))
    version = quantization.get("version", "gemm")
    if method not in METHODS or bits != 4 or (method == "awq" and str(version).lower() != "gemm"):
        raise UnsupportedError(
            f"{stored.path}: {module} is packed by {method!r} with bits {bits!r}, version {version!r}; "
            "convert knows awq (gemm) and gptq with 4 bits"
        )
    zeros, scales = (tensors.get(f"{module}.{part}") for part in ("qzeros", "scales"))
    if zeros is None or scales is None or {stored.dtype, zeros.dtype} != {"I32"}:
        raise FormatError(f"{stored.path}: {module} lacks qzeros or scales, or they are no I32")
    old = method == "gptq" and quantization.get("checkpoint_format", "gptq") == "gptq"
    found = ZeroPointParameter(stored, zeros, scales, method, int(old))
    fits = (
        len(stored.shape) == 2 and len(scales.shape) == 2 and 0 not in stored.shape + scales.shape
    )
    if not fits or scales.dtype not in PLAIN or found.shape[1] % scales.shape[0]:
        raise FormatError(f"{stored.path}: {module} has scales {scales.dtype} {scales.shape}")
    rows, cols = found.shape
    if scales.shape[1] != rows or zeros.shape != (scales.shape[0], rows // 8) or rows % 8:
        raise FormatError(
            f"{stored.path}: {module} is a matrix ({rows}, {cols}) with scales {scales.shape} and qzeros "
            f"{zeros.shape}, which do not fit together"
        )
    _check_order(module, tensors, cols, cols // scales.shape[0])
    return found


def _check_order(module: str, tensors: dict[str, StoredTensor], cols: int, group: int) -> None:
    """Refuse groups that are no neighbours, as GPTQ's need not be: GGUF's are."""
    index = tensors.get(f"{module}.g_idx")
    if index is None:
        return
    expected = np.arange(cols) // group
    if index.dtype != "I32" or index.shape != (cols,) or (index.read("<i4") != expected).any():
        raise UnsupportedError(
            f"{index.path}: {index.name} puts columns in groups out of order (desc_act), which GGUF has no "
            "place for; dequantize the model first"
        )
