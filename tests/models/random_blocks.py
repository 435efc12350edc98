"""Random blocks of every quant type and what they decode to, without any code of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

# Every 2-bit or 1-bit way to store weights; the others are the ordinary types of ggml.
LOW_BIT_TYPES = ["Q1_0", "Q2_0_g64", "Q2_0_g128", "PTQ1_0", "TQ2_0_g128", "TQ1_0", "TQ2_0"]
LEVEL_TYPES = [
    *("IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S"),
    *("IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M"),
]
INTEGER_TYPES = [
    *("Q8_0", "Q8_1", "Q8_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *LEVEL_TYPES,
    *LOW_BIT_TYPES,
]
_BASE_3 = {"TQ1_0", "PTQ1_0"}
_TWO_BIT = {"Q2_0_g64", "Q2_0_g128", "TQ2_0_g128", "TQ2_0"}


@dataclass(frozen=True)
class BlockFormat:
    """Sizes of a block, and offset and size (relative to the scale) of its binary16 fields."""

    gguf_id: int
    group: int
    bytes: int
    halves: tuple[tuple[int, float], ...] = ((0, 1.0),)


def _known(name: str, *halves: tuple[int, float]) -> BlockFormat:
    kind = gguf.GGMLQuantizationType[name]
    group, size = gguf.GGML_QUANT_SIZES[kind]
    return BlockFormat(int(kind), group, size, halves or ((0, 1.0),))


# A minimum is set to the middle of the codes' range, so that weights have mean zero.
FORMATS = {
    "Q8_0": _known("Q8_0"),
    "Q4_0": _known("Q4_0"),
    "Q4_1": _known("Q4_1", (0, 1.0), (2, -7.5)),
    "Q5_0": _known("Q5_0"),
    "Q5_1": _known("Q5_1", (0, 1.0), (2, -15.5)),
    "Q4_K": _known("Q4_K", (0, 1.0), (2, 7.5)),
    "Q5_K": _known("Q5_K", (0, 1.0), (2, 15.5)),
    "Q6_K": _known("Q6_K", (208, 1.0)),
    "Q8_1": BlockFormat(9, 32, 36),  # gguf has the size of an older form
    "Q8_K": _known("Q8_K"),
    "Q2_K": _known("Q2_K", (80, 1.0), (82, 1.5)),
    "Q3_K": _known("Q3_K", (108, 1.0)),
    **{name: _known(name) for name in LEVEL_TYPES},
    "TQ1_0": _known("TQ1_0", (52, 1.0)),
    "TQ2_0": _known("TQ2_0", (64, 1.0)),
    "Q1_0": BlockFormat(41, 128, 18),
    "Q2_0_g64": BlockFormat(42, 64, 18),
    "Q2_0_g128": BlockFormat(142, 128, 34),
    "PTQ1_0": BlockFormat(143, 128, 28, ((26, 1.0),)),
    "TQ2_0_g128": BlockFormat(42, 128, 34, ((32, 1.0),)),
}
# Codes that lie around -0.5, not 0. Scales of both signs undo that: a common mean of all weights
# drives every position of a random model to the same logits.
_OFF_CENTRE = {
    *("Q8_0", "Q8_1", "Q8_K", "Q4_0", "Q5_0", "Q6_K", "Q3_K", "IQ4_NL", "IQ4_XS", "IQ1_S", "IQ1_M")
}


def random_rows(
    random: np.random.Generator, quant_type: str, rows: int, cols: int, deviation: float
) -> tuple[Bytes, Floats]:
    """Rows of about the deviation asked for: their bytes, and what they decode to."""
    if quant_type not in FORMATS:
        raw = _float_rows(random.normal(0, deviation, (rows, cols)).astype(np.float32), quant_type)
    else:
        f = FORMATS[quant_type]
        blocks = rows * cols // f.group
        raw = _random_codes(random, quant_type, (blocks, f.bytes))
        scales = random.uniform(0.5, 1.5, blocks)
        if quant_type in _OFF_CENTRE:
            scales *= random.choice([-1.0, 1.0], blocks)
        _set_scales(raw, quant_type, f, scales * 1e-3)  # a size to measure the deviation at
        measured = float(decode(quant_type, raw).std())
        _set_scales(raw, quant_type, f, scales * 1e-3 * deviation / measured)
    return raw.reshape(rows, -1), decode(quant_type, raw).reshape(rows, cols)


def _float_rows(values: Floats, quant_type: str) -> Bytes:
    if quant_type == "F16":
        return values.astype(np.float16).view(np.uint8)
    if quant_type == "BF16":
        return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
    return values.view(np.uint8)


def _random_codes(random: np.random.Generator, quant_type: str, shape: tuple[int, int]) -> Bytes:
    """Any bytes, but ternary types get digits 0 to 2 alone."""
    if quant_type in _BASE_3:
        return ((random.integers(0, 243, shape) * 256 + 242) // 243).astype(np.uint8)
    if quant_type in _TWO_BIT:
        codes = random.integers(0, 3, (*shape, 4))
        return (codes << np.arange(0, 8, 2)).sum(-1).astype(np.uint8)
    return random.integers(0, 256, shape, dtype=np.uint8)


def _set_scales(
    raw: Bytes, quant_type: str, f: BlockFormat, scales: npt.NDArray[np.float64]
) -> None:
    if quant_type in _SCALE_WRITERS:
        return _SCALE_WRITERS[quant_type](raw, scales)
    for offset, factor in f.halves:
        half = (scales * factor).astype(np.float16)
        raw[:, offset : offset + 2] = half.view(np.uint8).reshape(-1, 2)


def _set_float32(raw: Bytes, scales: npt.NDArray[np.float64]) -> None:
    raw[:, :4] = scales.astype(np.float32).view(np.uint8).reshape(-1, 4)


def _set_power_of_two(raw: Bytes, scales: npt.NDArray[np.float64]) -> None:
    raw[:, 0] = np.round(np.log2(scales)) + 128


def _set_ue4m3(raw: Bytes, scales: npt.NDArray[np.float64]) -> None:
    halves = (scales / 128).astype(np.float16).view(np.uint16)  # binary16 has 7 bits more
    raw[:, :4] = np.minimum((halves + 64) >> 7, 0x7E)[:, None]


def _set_spread(raw: Bytes, scales: npt.NDArray[np.float64]) -> None:
    """Its four nibbles, lowest first, on top of the last four words of 16 bits."""
    bits = scales.astype(np.float16).view(np.uint16)
    for i in range(4):
        raw[:, 49 + 2 * i] = (raw[:, 49 + 2 * i] & 15) | ((bits >> (4 * i)) & 15) << 4


_SCALE_WRITERS: dict[str, Callable[[Bytes, npt.NDArray[np.float64]], None]] = {
    "Q8_K": _set_float32,
    "MXFP4": _set_power_of_two,
    "NVFP4": _set_ue4m3,
    "IQ1_M": _set_spread,
}


def decode(quant_type: str, raw: Bytes) -> Floats:
    """Weights in their order: by the `gguf` package, or by docs/formats.md for types it lacks."""
    if quant_type in _DECODERS:
        f = FORMATS[quant_type]
        blocks = raw.reshape(-1, f.bytes)
        offset = f.halves[0][0]
        scale = np.ascontiguousarray(blocks[:, offset : offset + 2]).view(np.float16)
        codes = _DECODERS[quant_type](np.delete(blocks, [offset, offset + 1], axis=1))
        return (codes * scale.astype(np.float32)).ravel()
    if quant_type == "F32":
        return raw.view(np.float32).ravel()
    if quant_type in ("Q8_1", "Q8_K"):
        return _scaled_bytes(quant_type, raw)
    kind = gguf.GGMLQuantizationType[quant_type]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    values: Floats = gguf.quants.dequantize(raw.reshape(-1, size), kind).ravel()
    return values


def _scaled_bytes(quant_type: str, raw: Bytes) -> Floats:
    f = FORMATS[quant_type]
    blocks = raw.reshape(-1, f.bytes)
    kind = np.float16 if quant_type == "Q8_1" else np.float32
    scale = np.ascontiguousarray(blocks[:, : kind().itemsize]).view(kind)
    codes = blocks[:, 4 : 4 + f.group].view(np.int8)
    values: Floats = (scale.astype(np.float32) * codes).ravel()
    return values


def _signs(codes: Bytes) -> Floats:
    bits = np.unpackbits(codes, axis=1, bitorder="little")
    return bits.astype(np.float32) * 2 - 1


def _two_bit(codes: Bytes) -> Floats:
    fields = (codes[:, :, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3
    return fields.reshape(len(codes), -1).astype(np.float32) - 1


def _trits(codes: Bytes) -> Floats:
    """Five digits a byte, first digits of 16 bytes first; then of 8; then four of the last 2."""

    def digits(part: Bytes, count: int) -> Floats:
        powers = 3 ** np.arange(count)[:, None]
        values = (part[:, None, :] * powers % 256) * 3 >> 8
        return values.reshape(len(part), -1).astype(np.float32) - 1

    return np.concatenate(
        [digits(codes[:, :16], 5), digits(codes[:, 16:24], 5), digits(codes[:, 24:], 4)], axis=1
    )


_DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "Q1_0": _signs,
    "Q2_0_g64": _two_bit,
    "Q2_0_g128": _two_bit,
    "TQ2_0_g128": _two_bit,
    "PTQ1_0": _trits,
}
