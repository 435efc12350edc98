"""Codes of 4 and 8 bits with scales and biases as the blocks of GGUF that mean the same.

All types have blocks of 32: Q4_0 is a float16 scale and nibbles, where byte j holds weights j and
j + 16; Q4_1 has a float16 minimum, too; Q8_0 is a float16 scale and signed bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.exact_blocks import Bytes
from oxibonsai.convert.float_types import Floats
from oxibonsai.errors import FormatError

_BLOCK = 32
# The bias of each type, in scales; None: a minimum of its own.
_BIAS = {"q4_0": -8.0, "q4_1": None, "q8_0": -128.0}
AFFINE_TYPES = tuple(_BIAS)
_Codes = npt.NDArray[np.uint8]


def encode_affine(
    codes: _Codes, scales: Floats, biases: Floats, type_name: str, where: str
) -> Bytes:
    """Return a matrix as blocks that decode to ``scale * code + bias`` of float16 constants.

    Args:
        codes: [rows, cols].
        scales, biases: [rows, groups].
        type_name: ``"q4_1"`` for codes up to 15, ``"q4_0"`` for those with biases of -8 scales,
            ``"q8_0"`` for codes up to 255 with biases of -128 scales.
        where: Names the tensor in errors.

    Raises:
        FormatError: A group's scale or bias is none that the type has; the first is named by its
            index, counted along the rows.
    """
    group = codes.shape[1] // scales.shape[1]
    if group % _BLOCK != 0:
        raise FormatError(
            f"{where} has groups of {group}, no multiple of the {_BLOCK} of {type_name}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        halves = [v.astype("<f2") for v in (scales, biases)]
        good = (halves[0] == scales) & np.isfinite(halves[0])
        if (ratio := _BIAS[type_name]) is None:
            good &= (halves[1] == biases) & np.isfinite(halves[1])
        else:
            good &= biases == scales * np.float32(ratio)
    if not good.all():
        index = int(good.reshape(-1).argmin())
        scale, bias = scales.reshape(-1)[index], biases.reshape(-1)[index]
        wanted = "are no float16" if ratio is None else f"are no float16 s and {ratio:g} s"
        raise FormatError(
            f"{where}: group {index} has scale {scale:.9g} and bias {bias:.9g}, which {wanted}: "
            f"{type_name} can't hold it without loss; a float type holds all"
        )
    repeats = group // _BLOCK
    d, m = (np.repeat(v, repeats, axis=1).reshape(-1, 1).view(np.uint8) for v in halves)
    blocks = codes.reshape(-1, _BLOCK)
    if type_name == "q8_0":
        return np.hstack([d, blocks ^ np.uint8(128)]).reshape(-1)  # codes from -128 on
    nibbles = blocks[:, :16] | blocks[:, 16:] << np.uint8(4)
    return np.hstack([d, nibbles] if type_name == "q4_0" else [d, m, nibbles]).reshape(-1)
