"""Numbers as checkpoints store them, widened without loss."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import UnsupportedError

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

PLAIN = {"F32": "f32", "F16": "f16", "BF16": "bf16"}  # the type that holds each exactly
BITS = {"f32": "<u4", "f16": "<u2", "bf16": "<u2"}  # integers of the size
EIGHT_BIT = {"F8_E4M3": (4, 3), "F8_E5M2": (5, 2)}  # bits of exponent and mantissa


def widened(stored: StoredTensor) -> Floats:
    """Return a tensor as float32; its eight-bit floats without their scales."""
    if stored.dtype == "F32":
        return stored.read("<f4").astype(np.float32, copy=False)
    if stored.dtype == "F16":
        return stored.read("<f2").astype(np.float32)
    if stored.dtype == "BF16":
        return (stored.read("<u2").astype(np.uint32) << 16).view(np.float32)
    if stored.dtype in EIGHT_BIT:
        values: Floats = _eight_bit_values(*EIGHT_BIT[stored.dtype])[stored.read("u1")]
        return values
    raise UnsupportedError(
        f"{stored.path}: parameter {stored.name} is of type {stored.dtype}; convert knows "
        + ", ".join([*PLAIN, *EIGHT_BIT])
    )


def rounded(values: Floats, dtype: str) -> Floats:
    """Return values rounded to nearest even in one of the plain types, as float32."""
    if dtype == "F32":
        return values
    if dtype == "F16":
        return values.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(values).view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(
        0xFFFF0000
    )
    return np.where(np.isnan(values), values, bits.view(np.float32))


@cache
def _eight_bit_values(exponent_bits: int, mantissa_bits: int) -> Floats:
    """Return the value of each of the 256 codes (OCP 8-bit floating point, 2023).

    E5M2 has infinities as IEEE 754 has them; E4M3 has none, and one NaN a sign.
    """
    codes = np.arange(256)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    values = np.ldexp(fraction, np.maximum(exponent, 1) - bias)
    if exponent_bits == 5:
        values[(exponent == 31) & (mantissa == 0)] = np.inf
        values[(exponent == 31) & (mantissa > 0)] = np.nan
    else:
        values[(codes & 0x7F) == 0x7F] = np.nan
    signed: Floats = np.where(codes < 128, values, -values).astype(np.float32)
    return signed
