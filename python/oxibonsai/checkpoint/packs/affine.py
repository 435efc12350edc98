"""MLX's affine packs: a matrix as codes of a few bits, with a scale and a bias for each group.

``NAME.weight`` holds uint32 words [rows, cols * bits / 32], the first code in the lowest bits;
``NAME.scales`` and ``NAME.biases`` [rows, cols / group]. A weight is ``scale * code + bias``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import PLAIN, Floats, widened
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

# The types that hold codes of so many bits exactly, where scales and biases allow.
EXACT_TYPE = {1: "q1_0", 2: "q2_0_g64", 4: "q4_1", 8: "q8_0"}


@dataclass(frozen=True)
class AffineParameter:
    """A packed matrix.

    Attributes:
        bits: Of a code.
        group: Weights that share a scale and a bias.
    """

    stored: StoredTensor
    scales: StoredTensor
    biases: StoredTensor
    bits: int
    group: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the matrix's shape."""
        rows, words = self.stored.shape
        return rows, words * 32 // self.bits

    @property
    def exact_type(self) -> str:
        """By the bits of a code, and of two bits by the group."""
        return "pq2_0" if self.bits == 2 and self.group % 128 == 0 else EXACT_TYPE[self.bits]

    def codes(self, first: int = 0, last: int | None = None) -> npt.NDArray[np.uint8]:
        """Return the codes of rows ``first`` to ``last - 1``, or of all from ``first`` on: [rows, cols]."""
        words = self.stored.read("<u4")[first:last]
        packed = words.view(np.uint8).reshape(len(words), -1)
        if self.bits == 8:
            return packed
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        codes = packed[:, :, None] >> shifts & np.uint8((1 << self.bits) - 1)
        return codes.reshape(len(words), self.shape[1])

    def affine(self) -> tuple[Floats, Floats]:
        """Return scales and biases: [rows, groups]."""
        return widened(self.scales), widened(self.biases)

    def values(self) -> Floats:
        """Return scale times code plus bias, in float32."""
        scales, biases = (np.repeat(v, self.group, axis=1) for v in self.affine())
        with np.errstate(over="ignore", invalid="ignore"):  # refused by their tensor
            found: Floats = scales * self.codes().astype(np.float32) + biases
        return found


def affine_parameter(
    name: str, tensors: dict[str, StoredTensor], quantization: dict[str, Any]
) -> AffineParameter:
    """Return the matrix whose codes are the tensor ``name``.

    Args:
        name: Ends with ``.weight``.
        tensors: All of the checkpoint.
        quantization: ``quantization`` of ``config.json``; a module may have its own ``bits`` and
            ``group_size`` there.

    Raises:
        FormatError: Scales or biases are missing, or shapes and numbers do not fit together.
        UnsupportedError: Codes of so many bits are not known.
    """
    stored, module = tensors[name], name.removesuffix(".weight")
    own = quantization.get(module)
    settings = {**quantization, **(own if isinstance(own, dict) else {})}
    bits, group = settings.get("bits"), settings.get("group_size")
    if type(bits) is not int or bits not in EXACT_TYPE:
        raise UnsupportedError(
            f"{stored.path}: {name} is packed with bits {bits!r}; convert knows "
            + ", ".join(map(str, EXACT_TYPE))
        )
    if settings.get("mode", "affine") != "affine":
        raise UnsupportedError(f"{stored.path}: {name} has mode {settings['mode']!r}, not affine")
    parts = [tensors.get(f"{module}.{part}") for part in ("scales", "biases")]
    scales, biases = parts
    if scales is None or biases is None:
        raise FormatError(f"{stored.path}: {name} is packed but has no scales or no biases")
    if len(stored.shape) != 2 or type(group) is not int or group < 1:
        raise FormatError(f"{stored.path}: {name} has shape {stored.shape}, group_size {group!r}")
    rows, cols = stored.shape[0], stored.shape[1] * 32 // bits
    for part in (scales, biases):
        if part.shape != (rows, cols // group) or cols % group or part.dtype not in PLAIN:
            raise FormatError(
                f"{part.path}: {part.name} is {part.dtype} {part.shape}, but {cols} columns in groups of "
                f"{group} need floats ({rows}, {cols // group})"
            )
    return AffineParameter(stored, scales, biases, bits, group)
