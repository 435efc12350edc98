"""Matrices of compressed-tensors (llm-compressor, vLLM): integers or eight-bit floats, and scales.

Integers are signed. ``NAME.weight_packed`` [rows, words] holds them in int32 words, a row as one
string of bits, the first code in the lowest; each is raised by half of its range. Otherwise
``NAME.weight`` holds one a byte. ``NAME.weight_scale`` belongs to it; without symmetry
``NAME.weight_zero_point``, which is packed along the rows where the codes are; where groups are out of
order, ``NAME.weight_g_idx`` with the group of each column. A weight is ``(code - zero) * scale``,
rounded to the scale's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import EIGHT_BIT, PLAIN, Floats, rounded, widened
from oxibonsai.checkpoint.packs.affine_blocks import holds_affine
from oxibonsai.checkpoint.packs.compressed_schemes import METHOD, PACKED_FORMAT, Scheme, Schemes
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

_BLOCK = 32  # weights of a block of Q4_0, Q4_1 and Q8_0
_NIBBLE, _BYTE = 4, 8
# What belongs to a module and is no weight: scales of activations and of the cache.
_OTHER_PARTS = tuple(
    f"{what}_{part}"
    for what in ("input", "output")
    for part in ("scale", "zero_point", "global_scale")
)
_CACHE_PARTS = ("q_scale", "k_scale", "v_scale")
_WEIGHT_PARTS = ("weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
_Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class _Scaled:
    """Codes with scales.

    Attributes:
        shape: [rows, cols] of the matrix.
        block: Rows and columns that share a scale; the last of a block may be missing.
    """

    stored: StoredTensor
    scale: StoredTensor
    shape: tuple[int, int]
    block: tuple[int, int]

    def _scales(self) -> Floats:
        """Return the scales of each row: [rows, groups]."""
        found = widened(self.scale)
        if not np.isfinite(found).all():
            raise FormatError(f"{self.scale.path}: {self.scale.name} is not finite")
        return self._of_rows(found)

    def _of_rows(self, values: Floats) -> Floats:
        """Return what blocks share as what groups of each row do."""
        groups = -(-self.shape[1] // self.block[1])
        return np.repeat(values.reshape(-1, groups), self.block[0], axis=0)[: self.shape[0]]

    def _times_scales(self, codes: Floats, group_of: npt.NDArray[np.int64]) -> Floats:
        """Return codes times the scales of their groups, rounded as the package does."""
        with np.errstate(over="ignore", invalid="ignore"):  # refused by their tensor
            return rounded(codes * self._scales()[:, group_of], self.scale.dtype)


@dataclass(frozen=True)
class CompressedFloats(_Scaled):
    """Eight-bit floats with scales."""

    @property
    def exact_type(self) -> str:
        """Return the scale's type."""
        return PLAIN[self.scale.dtype]

    def values(self) -> Floats:
        """Return all weights in float32."""
        return self._times_scales(widened(self.stored), np.arange(self.shape[1]) // self.block[1])


@dataclass(frozen=True)
class CompressedIntegers(_Scaled):
    """Integer codes with scales, and zero points where the range is not symmetric.

    Attributes:
        bits: Of a code.
        packed: Whether codes lie in words, and not one a byte.
        zeros: Zero points; None: all are 0.
        packed_zeros: Whether they lie in words.
        order: The group of each column; None: groups are neighbours.
    """

    bits: int
    packed: bool
    zeros: StoredTensor | None
    packed_zeros: bool
    order: StoredTensor | None

    @cached_property
    def exact_type(self) -> str:
        """Return Q4_0, Q4_1 or Q8_0 where one holds codes and scales, else the scale's type."""
        kind = self._block_type()
        if kind is None or self.order is not None or self.shape[1] % _BLOCK:
            return PLAIN[self.scale.dtype]
        if self.block[1] % _BLOCK and self.block[1] < self.shape[1]:
            return PLAIN[self.scale.dtype]
        return kind if holds_affine(*self.affine_of(kind), kind).all() else PLAIN[self.scale.dtype]

    def _block_type(self) -> str | None:
        """Return the type that has such codes and zero points; None: there is none."""
        if self.bits <= _NIBBLE:
            return "q4_0" if self.zeros is None else "q4_1"
        return "q8_0" if self.zeros is None else None

    def codes(self) -> npt.NDArray[np.uint8]:
        """Return all codes as the exact type has them, from 0 on: [rows, cols]."""
        return (self._signed().astype(np.int16) + self._half()).astype(np.uint8)

    def _half(self) -> int:
        """Return half the range of the exact type's codes."""
        return 1 << ((_NIBBLE if self.bits <= _NIBBLE else _BYTE) - 1)

    def affine(self) -> tuple[Floats, Floats]:
        """Return scales, and minima rounded to the float16 that Q4_1 has: [rows, blocks of 32]."""
        return self.affine_of(self.exact_type)

    def affine_of(self, kind: str) -> tuple[Floats, Floats]:
        """Return scales and minima as a block type has them."""
        scales, zeros = self._scales(), self._zero_points()
        with np.errstate(over="ignore", invalid="ignore"):  # refused with their group
            minima = -(zeros + np.float32(self._half())) * scales
            if kind == "q4_1":
                minima = minima.astype(np.float16).astype(np.float32)
        groups = np.arange(self.shape[1] // _BLOCK) * _BLOCK // self.block[1]
        return scales[:, groups], minima[:, groups]

    def values(self) -> Floats:
        """Return all weights in float32."""
        columns = np.arange(self.shape[1]) // self.block[1]
        if self.order is not None:
            columns = self.order.read("<i4").astype(np.int64)
        centred = self._signed().astype(np.float32) - self._zero_points()[:, columns]
        return self._times_scales(centred, columns)

    def _signed(self) -> _Codes:
        """Return all codes: [rows, cols]."""
        if self.packed:
            return unpacked(self.stored.read("<u4"), self.bits, self.shape[1])
        codes: _Codes = self.stored.read("i1")
        half = 1 << (self.bits - 1)
        if self.bits < _BYTE and ((codes < -half) | (codes >= half)).any():
            raise FormatError(
                f"{self.stored.path}: {self.stored.name} has codes that are no integers of {self.bits} bits"
            )
        return codes

    def _zero_points(self) -> Floats:
        """Return the zero points of each row: [rows, groups]."""
        groups = -(-self.shape[1] // self.block[1])
        if self.zeros is None:
            return np.zeros((self.shape[0], groups), np.float32)
        if self.packed_zeros:
            words = np.ascontiguousarray(self.zeros.read("<u4").T)  # [groups, words]
            return unpacked(words, self.bits, self.shape[0]).T.astype(np.float32)
        held, half = self.zeros.read("i1"), 1 << (self.bits - 1)
        if ((held < -half) | (held >= half)).any():
            raise FormatError(
                f"{self.zeros.path}: {self.zeros.name} has zero points that are no integers of {self.bits} "
                "bits"
            )
        return self._of_rows(held.astype(np.float32))


def unpacked(words: npt.NDArray[np.uint32], bits: int, count: int) -> _Codes:
    """Return the signed codes [rows, count] of rows of words.

    Args:
        words: [rows, words]; a row is one string of bits.
        bits: Of a code.
        count: Codes of a row.
    """
    rows = np.ascontiguousarray(words).view(np.uint8)
    if bits in (_NIBBLE, _BYTE):
        codes = rows if bits == _BYTE else np.stack([rows & 15, rows >> 4], -1)
        codes = codes.reshape(len(rows), -1)[:, :count]
    else:
        each = np.unpackbits(rows, axis=1, count=count * bits, bitorder="little")
        each = each.reshape(len(rows), count, bits)
        codes = np.packbits(each, axis=2, bitorder="little")[:, :, 0]
    return (codes.astype(np.int16) - (1 << (bits - 1))).astype(np.int8)


CompressedParameter = CompressedFloats | CompressedIntegers


def compressed_parameters(
    tensors: dict[str, StoredTensor], schemes: Schemes
) -> tuple[dict[str, CompressedParameter], set[str]]:
    """Return the packed matrices of a checkpoint by name, and the names of all tensors that they use.

    Args:
        tensors: All of the checkpoint.
        schemes: Its configuration.

    Raises:
        FormatError: A part is missing, or parts do not fit together or the configuration.
        UnsupportedError: A matrix has more dimensions.
    """
    found: dict[str, CompressedParameter] = {}
    used: set[str] = set()
    for name, stored in tensors.items():
        module, _, part = name.rpartition(".")
        if part in _OTHER_PARTS or (part in _CACHE_PARTS and module.endswith("attn")):
            used.add(name)
        codes = stored.dtype == "I8" or stored.dtype in EIGHT_BIT
        scaled = f"{module}.weight_scale" in tensors
        if part != "weight_packed" and not (part == "weight" and (codes or scaled)):
            continue
        weight = f"{module}.weight"
        if weight in found or (part == "weight_packed" and weight in tensors):
            raise FormatError(f"{stored.path}: {module} has both weight and weight_packed")
        found[weight] = compressed_parameter(module, stored, tensors, schemes.of(module))
        used |= {name, *(f"{module}.{p}" for p in _WEIGHT_PARTS)}
    return found, used


def compressed_parameter(
    module: str, stored: StoredTensor, tensors: dict[str, StoredTensor], scheme: Scheme
) -> CompressedParameter:
    """Return the matrix of a module; errors as of :func:`compressed_parameters`.

    Args:
        module: Its name.
        stored: Its codes.
        tensors: All of the checkpoint.
        scheme: How they are stored.
    """
    where, packed = f"{stored.path}: {module}", stored.name.endswith("_packed")
    scale = tensors.get(f"{module}.weight_scale")
    if scale is None:
        raise FormatError(f"{where} is packed but has no weight_scale")
    if scheme.format not in (None, "dense") and packed != (scheme.format == PACKED_FORMAT):
        raise FormatError(f"{where} has {stored.name}, which is not of the format {scheme.format}")
    wanted = "I32" if packed else "F8_E4M3" if scheme.floats else "I8"
    if stored.dtype != wanted or (packed and scheme.floats):
        raise FormatError(
            f"{where} is stored as {stored.dtype}, but weights of its config group are {wanted}"
        )
    if len(stored.shape) != 2 or 0 in stored.shape:
        raise UnsupportedError(f"{where} has the shape {stored.shape}, and is no matrix")
    rows, cols = shape = _shape(where, stored, tensors, scheme) if packed else stored.shape
    block = (scheme.block[0] or rows, scheme.block[1] or cols)
    groups = -(-cols // block[1])
    if scheme.strategy == "group" and cols % block[1]:
        raise FormatError(f"{where} has rows of {cols}, which groups of {block[1]} do not divide")
    wanted_scales = (-(-rows // block[0]), groups)
    _check_shared(where, scale, tuple(PLAIN), wanted_scales)
    if scheme.floats:
        return CompressedFloats(stored, scale, (rows, cols), block)
    zeros = tensors.get(f"{module}.weight_zero_point")
    packed_zeros = packed and not scheme.symmetric and scheme.strategy in ("group", "channel")
    if packed_zeros and zeros is not None:
        words = -(-rows * scheme.bits // 32)
        if zeros.dtype != "I32" or zeros.shape != (words, groups):
            raise FormatError(
                f"{where} has a weight_zero_point {zeros.dtype} {zeros.shape}, not I32 {(words, groups)}"
            )
    elif zeros is not None:
        _check_shared(where, zeros, ("I8",), wanted_scales)
        if scheme.symmetric and zeros.raw().any():
            raise FormatError(f"{where} is symmetric, but has a weight_zero_point that is not 0")
    elif not scheme.symmetric:
        raise FormatError(f"{where} is not symmetric but has no weight_zero_point")
    order = _order(where, tensors.get(f"{module}.weight_g_idx"), cols, block[1], scheme)
    return CompressedIntegers(
        stored, scale, shape, block, scheme.bits, packed, None if scheme.symmetric else zeros,
        packed_zeros, order,
    )  # fmt: skip


def decoded_notes(parameters: Mapping[str, object]) -> list[str]:
    """Return what the user should know of matrices whose codes no type of GGUF holds.

    Args:
        parameters: All of a checkpoint, by name.
    """
    decoded = {
        name: held.exact_type
        for name, held in parameters.items()
        if isinstance(held, CompressedParameter) and held.exact_type in PLAIN.values()
    }
    if not decoded:
        return []
    first, kind = next(iter(decoded.items()))
    return [
        f"{len(decoded)} matrices of {METHOD} are stored decoded, since no type of GGUF holds their codes "
        f"and scales; the first is {first}, as {kind.upper()}. convert --type chooses a smaller type"
    ]


def _shape(
    where: str, stored: StoredTensor, tensors: dict[str, StoredTensor], scheme: Scheme
) -> tuple[int, int]:
    """Return the shape of a matrix whose codes lie in words."""
    held = tensors.get(f"{stored.name.removesuffix('_packed')}_shape")
    if held is None or held.dtype not in ("I64", "I32") or held.shape != (2,):
        raise FormatError(f"{where} has no weight_shape of two integers")
    rows, cols = (int(n) for n in held.read("<i8" if held.dtype == "I64" else "<i4"))
    if (rows, -(-cols * scheme.bits // 32)) != stored.shape:
        raise FormatError(
            f"{where} has weight_shape {(rows, cols)} and weight_packed {stored.shape} of {scheme.bits} "
            "bits, which do not fit together"
        )
    return rows, cols


def _check_shared(
    where: str, held: StoredTensor, dtypes: tuple[str, ...], wanted: tuple[int, int]
) -> None:
    """Refuse scales or zero points that are not one for each block; a dimension of 1 may be missing."""
    fits = held.shape == wanted or (wanted[1] == 1 and held.shape == wanted[:1])
    if held.dtype not in dtypes or not (fits or (wanted == (1, 1) and held.shape == ())):
        part = held.name.rpartition(".")[2]
        raise FormatError(
            f"{where} has a {part} {held.dtype} {held.shape}, but its config group asks for "
            f"{'/'.join(dtypes)} {wanted}"
        )


def _order(
    where: str, index: StoredTensor | None, cols: int, group: int, scheme: Scheme
) -> StoredTensor | None:
    """Return which group each column is in; None: groups are neighbours."""
    if index is None:
        if not scheme.ordered:
            raise FormatError(f"{where} has groups out of order (actorder) but no weight_g_idx")
        return None
    if index.dtype != "I32" or index.shape != (cols,):
        raise FormatError(
            f"{where} has a weight_g_idx {index.dtype} {index.shape}, not I32 ({cols},)"
        )
    held = index.read("<i4")
    if (held == -1).all() or (held == np.arange(cols) // group).all():
        return None
    if scheme.strategy != "group" or (np.sort(held) != np.arange(cols) // group).any():
        raise FormatError(
            f"{where} has a weight_g_idx that does not put {group} columns in each group"
        )
    return index
