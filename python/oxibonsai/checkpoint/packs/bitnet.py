"""Ternary matrices of transformers' ``bitnet`` quantization: four rows in one, a scale for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.checkpoint.float_types import Floats, widened
from oxibonsai.checkpoint.i2_s import has_code_3, ternary_scale
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

_CODES = 4  # in a byte
_METHOD, _GROUP = "bitnet", 128
_MULTIPLIES = {"bitlinear": False, "autobitlinear": True}


@dataclass(frozen=True)
class BitNetParameter:
    """Codes 0, 1 and 2 for -1, 0 and 1 times a scale, or divided by it.

    Attributes:
        packed: Bits 2i of row r are the code of row r + i times the rows of this.
        scale: One number.
        multiplies: Whether it is a factor; else a divisor.
    """

    packed: StoredTensor
    scale: StoredTensor
    multiplies: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, columns]."""
        rows, cols = self.packed.shape
        return _CODES * rows, cols

    @property
    def exact_type(self) -> str:
        """PQ2_0, if its groups divide the rows."""
        return "pq2_0" if self.shape[1] % _GROUP == 0 else "f32"

    def values(self) -> Floats:
        """Return the matrix; its scale is rounded to float16, as types of blocks hold it.

        Raises:
            FormatError: A code stands for no weight, or the scale is no positive number.
            UnsupportedError: A float16 cannot hold the scale.
        """
        packed = self.packed.read("u1")
        if has_code_3(packed):
            raise FormatError(
                f"{self.packed.path}: {self.packed.name} holds the code 3, which stands for no weight"
            )
        stored = float(widened(self.scale).reshape(-1)[0])
        where = f"{self.scale.path}: the scale {self.scale.name}"
        if not self.multiplies and stored == 0:
            raise FormatError(f"{where} divides by zero")
        scale = ternary_scale(stored if self.multiplies else 1 / stored, where)
        codes = np.concatenate([packed >> 2 * i & 3 for i in range(_CODES)])
        found: Floats = (codes.astype(np.float32) - 1) * np.float32(scale)
        return found


def bitnet_parameter(
    packed: StoredTensor, scale: StoredTensor | None, quantization: dict[str, Any]
) -> BitNetParameter:
    """Return the parameter that ``NAME.weight`` of bytes and ``NAME.weight_scale`` hold together.

    Args:
        packed: The codes.
        scale: None: there is none.
        quantization: ``quantization_config`` of ``config.json``.

    Raises:
        FormatError: The scale is missing, or shapes do not fit.
        UnsupportedError: The configuration describes another form of matrices.
    """
    method, kind = quantization.get("quant_method"), quantization.get("linear_class", "bitlinear")
    if method != _METHOD or kind not in _MULTIPLIES:
        raise UnsupportedError(
            f"{packed.path}: {packed.name} holds bytes, which quant_method {method!r} with linear_class "
            f"{kind!r} gives no meaning that is known; known is {_METHOD!r} with "
            + " or ".join(map(repr, _MULTIPLIES))
        )
    if quantization.get("use_rms_norm"):
        raise UnsupportedError(
            f"{packed.path}: a norm in each linear layer (use_rms_norm) is not supported"
        )
    if len(packed.shape) != 2 or 0 in packed.shape:
        raise FormatError(f"{packed.path}: {packed.name} of shape {packed.shape} is no matrix")
    if scale is None:
        raise FormatError(f"{packed.path}: {packed.name} has no weight_scale")
    if scale.shape not in ((), (1,)):
        raise FormatError(f"{scale.path}: {scale.name} has shape {scale.shape}, not one number")
    return BitNetParameter(packed, scale, _MULTIPLIES[kind])
