"""Codes of 2, 4 and 8 bits with scales and biases as the blocks of GGUF that mean the same.

Blocks of 32: Q4_0 is a float16 scale and nibbles, where byte j holds weights j and j + 16; Q4_1 has a
float16 minimum, too; Q8_0 is a float16 scale and signed bytes. Blocks of 128, whose scales are kept
where all weights are zero, too: PQ2_0 and PTQ1_0 (``exact_blocks``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import Bytes, Floats
from oxibonsai.checkpoint.packs.affine import AffineParameter
from oxibonsai.checkpoint.packs.exact_blocks import EXACT_TYPES
from oxibonsai.errors import FormatError

_BLOCK = 32
_ENCODED = 1 << 20  # weights at once
# The bias of each type, in scales; None: a minimum of its own.
_BIAS = {"q4_0": -8.0, "q4_1": None, "q8_0": -128.0, "pq2_0": -1.0, "ptq1_0": -1.0}
_TERNARY = 2  # the largest code that base 3 holds
_Codes = npt.NDArray[np.uint8]


def keeps_codes(type_name: str, exact_type: str) -> bool:
    """Return whether codes of an exact type are those of a type's blocks."""
    return type_name in _BIAS and exact_type == {"ptq1_0": "pq2_0"}.get(type_name, type_name)


def holds_affine(scales: Floats, biases: Floats, type_name: str) -> npt.NDArray[np.bool_]:
    """Return which groups have a scale and a bias that a type can hold whose codes are kept."""
    with np.errstate(over="ignore", invalid="ignore"):
        halves = [v.astype("<f2") for v in (scales, biases)]
        good: npt.NDArray[np.bool_] = (halves[0] == scales) & np.isfinite(halves[0])
        if (ratio := _BIAS[type_name]) is None:
            good &= (halves[1] == biases) & np.isfinite(halves[1])
        else:
            good &= biases == scales * np.float32(ratio)
    return good


def encode_affine(
    codes: _Codes, scales: Floats, biases: Floats, type_name: str, where: str, first_row: int = 0
) -> Bytes:
    """Return a matrix as blocks that decode to ``scale * code + bias`` of float16 constants.

    Args:
        codes: [rows, cols].
        scales, biases: [rows, groups].
        type_name: ``"q4_1"`` for codes up to 15, ``"q4_0"`` for those with biases of -8 scales,
            ``"q8_0"`` for codes up to 255 with biases of -128 scales, ``"pq2_0"`` for codes up to 3 and
            ``"ptq1_0"`` up to 2 with biases of -1 scale.
        where: Names the tensor in errors.
        first_row: Of these rows, in the tensor.

    Raises:
        FormatError: A group's scale or bias is none that the type has; the first is named by its
            index, counted along the rows.
    """
    group = codes.shape[1] // scales.shape[1]
    own = EXACT_TYPES[type_name].group if type_name in EXACT_TYPES else _BLOCK
    if group % own != 0:
        raise FormatError(f"{where} has groups of {group}, no multiple of the {own} of {type_name}")
    good, ratio = holds_affine(scales, biases, type_name), _BIAS[type_name]
    if not good.all():
        index = int(good.reshape(-1).argmin())
        scale, bias = scales.reshape(-1)[index], biases.reshape(-1)[index]
        index += first_row * scales.shape[1]
        wanted = "are no float16" if ratio is None else f"are no float16 s and {ratio:g} s"
        raise FormatError(
            f"{where}: group {index} has scale {scale:.9g} and bias {bias:.9g}, which {wanted}: "
            f"{type_name} can't hold it without loss; a float type holds all"
        )
    repeats = group // own
    with np.errstate(over="ignore"):  # of a bias that the type leaves out
        halves = [v.astype("<f2") for v in (scales, biases)]
    if type_name in EXACT_TYPES:
        if type_name == "ptq1_0" and (codes > _TERNARY).any():
            raise FormatError(
                f"{where} has weights of +2 s, which {type_name} can't hold: take pq2_0"
            )
        each = np.repeat(halves[0], repeats, axis=1).ravel()
        return EXACT_TYPES[type_name].pack(codes.reshape(-1, own), each).ravel()
    d, m = (np.repeat(v, repeats, axis=1).reshape(-1, 1).view(np.uint8) for v in halves)
    blocks = codes.reshape(-1, _BLOCK)
    if type_name == "q8_0":
        return np.hstack([d, blocks ^ np.uint8(128)]).reshape(-1)  # codes from -128 on
    nibbles = blocks[:, :16] | blocks[:, 16:] << np.uint8(4)
    return np.hstack([d, nibbles] if type_name == "q4_0" else [d, m, nibbles]).reshape(-1)


def encode_pack(held: AffineParameter, type_name: str, where: str) -> Bytes:
    """Return a pack of MLX as blocks, as :func:`encode_affine`, some rows at a time."""
    scales, biases = held.affine()
    rows = max(1, _ENCODED // held.shape[1])

    def part(first: int) -> Bytes:
        last = first + rows
        codes = held.codes(first, last)
        return encode_affine(codes, scales[first:last], biases[first:last], type_name, where, first)

    return np.concatenate([part(first) for first in range(0, held.shape[0], rows)])


def same_values_type(held: AffineParameter) -> str:
    """Return the type whose blocks decode to a pack's very values; float32 where there is none."""
    scales, biases = held.affine()
    if held.group == 128 and held.bits == 2:
        return "tq2_0_g128" if (biases == -scales).all() and _are_halves(scales) else "f32"
    if held.group == 128 and held.bits == 1:
        fits = (biases * np.float32(-2) == scales).all() and _are_halves(biases)
        return "q1_0" if fits else "f32"
    if held.group % _BLOCK == 0 and held.bits in (4, 8):
        return held.exact_type if holds_affine(scales, biases, held.exact_type).all() else "f32"
    return "f32"


def _are_halves(scales: Floats) -> bool:
    with np.errstate(over="ignore"):
        return bool((scales.astype(np.float16) == scales).all())


def same_values_blocks(held: AffineParameter, type_name: str) -> Bytes:
    """Return the blocks of the type, none of floats, that :func:`same_values_type` has chosen.

    Raises:
        FormatError: A code of two bits is no ternary weight.
    """
    where = f"{held.stored.path}: {held.stored.name}"
    scales, biases = held.affine()
    if type_name not in ("tq2_0_g128", "q1_0"):
        return encode_pack(held, type_name, where)
    codes = held.stored.read("<u4").view(np.uint8).reshape(*scales.shape, -1)
    if type_name == "q1_0":
        return np.concatenate([_halves(-biases), codes], axis=2).reshape(-1)
    if (codes & (codes >> np.uint8(1)) & np.uint8(0x55)).any():
        raise FormatError(f"{where} holds the code 3, which is no ternary weight")
    return np.concatenate([codes, _halves(scales)], axis=2).reshape(-1)


def _halves(scales: Floats) -> Bytes:
    return scales.astype("<f2").view(np.uint8).reshape(*scales.shape, 2)
