"""Convert between images as users have them and the values that networks work on; write PNG."""

from __future__ import annotations

import heapq
import math
import struct
import zlib
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

if TYPE_CHECKING:
    from PIL.Image import Image


Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_REFERENCE_AREA = 1024 * 1024  # larger references are made smaller
_REFERENCE_SIDE, _REFERENCE_RATIO = 64, 8


def to_pixels(values: Floats) -> Pixels:
    """Return float32 [h, w, 3] from -1 to 1 as uint8, clamped and rounded half to even."""
    unit = np.clip(values * np.float32(0.5) + np.float32(0.5), 0.0, 1.0)
    found: Pixels = np.rint(unit * np.float32(255)).astype(np.uint8)
    return found


def to_values(image: Image) -> Floats:
    """Return an image of Pillow's in RGB as float32 [h, w, 3] from -1 to 1."""
    unit = np.asarray(image, np.uint8).astype(np.float32) / np.float32(255)
    return unit * np.float32(2) - np.float32(1)


def resized(image: Image, width: int, height: int) -> Image:
    """Return the image in a size, by Lanczos' filter."""
    from PIL.Image import Resampling

    if image.size == (width, height):
        return image
    return image.resize((width, height), Resampling.LANCZOS)


def as_reference(image: Image, patch: int) -> Image:
    """Return a reference image in the size in which a network looks at it, as diffusers does.

    One of more than 1024 x 1024 pixels is made smaller; then its middle is cut out so that sides are
    multiples of ``patch``.

    Raises:
        RequestError: The image is too small or too narrow.
    """
    width, height = image.size
    least = max(_REFERENCE_SIDE, patch)
    if min(width, height) < least:
        raise RequestError(f"a reference of {width} x {height} pixels: sides need at least {least}")
    if max(width / height, height / width) > _REFERENCE_RATIO:
        raise RequestError(
            f"a reference of {width} x {height} pixels: one side is more than {_REFERENCE_RATIO} times "
            "the other"
        )
    if width * height > _REFERENCE_AREA:
        factor = math.sqrt(_REFERENCE_AREA / (width * height))
        width, height = int(width * factor), int(height * factor)
        image = resized(image, width, height)
    wide, high = width // patch * patch, height // patch * patch
    left, top = (width - wide) // 2, (height - high) // 2
    return image.crop((left, top, left + wide, top + high))


_Bits = npt.NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BLOCK_BYTES = 1 << 20  # of deflate; bounds the memory, as a bit is a byte in between
_LONGEST_CODE = 15
_END = 256  # the symbol after a block's bytes
# The order in which deflate lists the lengths of the codes for code lengths.
_LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)


def encode_png(pixels: Pixels, texts: Mapping[str, str]) -> bytes:
    """Return an image as a file.

    Args:
        pixels: uint8 [height, width, 3], red, green, blue.
        texts: What the file says beside the image, by keyword (Latin-1, up to 79 characters).

    Raises:
        RequestError: The pixels have another shape or type.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise RequestError(f"a picture of {pixels.dtype} {pixels.shape}; PNG needs uint8 [h, w, 3]")
    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [_SIGNATURE, _chunk(b"IHDR", header)]
    parts += [_text_chunk(keyword, text) for keyword, text in texts.items()]
    parts += [_chunk(b"IDAT", _zlib_stream(_filtered(pixels))), _chunk(b"IEND", b"")]
    return b"".join(parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _text_chunk(keyword: str, text: str) -> bytes:
    key = keyword.encode("latin-1")
    try:
        return _chunk(b"tEXt", key + b"\0" + text.encode("latin-1"))
    except UnicodeEncodeError:
        return _chunk(b"iTXt", key + b"\0\0\0\0\0" + text.encode())


def _filtered(pixels: Pixels) -> Pixels:
    """Return each row after the number of the filter that leaves the smallest differences."""
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, width * 3).astype(np.int16)
    above = np.zeros_like(rows)
    above[1:] = rows[:-1]
    left, corner = np.zeros_like(rows), np.zeros_like(rows)
    left[:, 3:], corner[:, 3:] = rows[:, :-3], above[:, :-3]
    guesses = (np.zeros_like(rows), left, above, (left + above) >> 1, _paeth(left, above, corner))
    found = np.stack([(rows - guess).astype(np.uint8) for guess in guesses])
    sizes = np.abs(found.view(np.int8).astype(np.int16)).sum(axis=2, dtype=np.int64)
    best = sizes.argmin(axis=0)
    out = np.empty((height, 1 + width * 3), np.uint8)
    out[:, 0] = best
    out[:, 1:] = found[best, np.arange(height)]
    return out


def _paeth(
    left: npt.NDArray[np.int16], above: npt.NDArray[np.int16], corner: npt.NDArray[np.int16]
) -> npt.NDArray[np.int16]:
    """Return the neighbour, of three, nearest to left + above - corner."""
    guess = left + above - corner
    a, b, c = (np.abs(guess - side) for side in (left, above, corner))
    return np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))


def _zlib_stream(data: Pixels) -> bytes:
    flat = data.reshape(-1)
    blocks = [flat[i : i + _BLOCK_BYTES] for i in range(0, flat.size, _BLOCK_BYTES)]
    out, carry = [b"\x78\x01"], np.zeros(0, np.uint8)
    for i, block in enumerate(blocks):
        bits = np.concatenate([carry, _deflate_block(block, last=i == len(blocks) - 1)])
        whole = bits.size if i == len(blocks) - 1 else bits.size // 8 * 8
        out.append(np.packbits(bits[:whole], bitorder="little").tobytes())
        carry = bits[whole:]
    out.append(struct.pack(">I", zlib.adler32(flat.tobytes())))
    return b"".join(out)


def _deflate_block(data: Pixels, *, last: bool) -> _Bits:
    """Return a block with Huffman codes of its own (RFC 1951, 3.2.7), as bits."""
    frequencies = np.bincount(data, minlength=_END + 1)
    frequencies[_END] = 1
    lengths = _code_lengths(frequencies.tolist())
    codes = _reversed_codes(lengths)
    # Code lengths are written in four bits each, so the codes for 0 to 15 have length 4.
    fours = [4 if symbol < 16 else 0 for symbol in _LENGTH_ORDER]
    header = [_number(int(last), 1), _number(2, 2), _number(_END + 1 - 257, 5), _number(0, 5)]
    header += [_number(len(fours) - 4, 4), *(_number(n, 3) for n in fours)]
    fixed = _reversed_codes([4] * 16)
    # The last length is of the one code for distances: 0 bits, as there are none.
    header += [_number(int(fixed[n]), 4) for n in [*lengths, 0]]
    table = np.array(lengths, np.int64)
    return np.concatenate([*header, _coded(np.append(data, np.uint16(_END)), codes, table)])


def _number(value: int, bits: int) -> _Bits:
    return np.array([value >> i & 1 for i in range(bits)], np.uint8)


def _coded(
    symbols: npt.NDArray[np.integer], codes: npt.NDArray[np.uint16], lengths: npt.NDArray[np.int64]
) -> _Bits:
    sizes = lengths[symbols]
    ends = np.cumsum(sizes)
    starts, words = ends - sizes, codes[symbols]
    bits = np.zeros(int(ends[-1]), np.uint8)
    for i in range(int(sizes.max())):
        some = sizes > i
        bits[starts[some] + i] = words[some] >> i & 1
    return bits


def _code_lengths(frequencies: list[int]) -> list[int]:
    """Return a Huffman code's lengths within deflate's limit; rare symbols count more until it fits."""
    while True:
        lengths = [0] * len(frequencies)
        order = count()  # ties go by age, the same everywhere
        heap = [(f, next(order), [s]) for s, f in enumerate(frequencies) if f]
        if len(heap) == 1:
            lengths[heap[0][2][0]] = 1
            return lengths
        heapq.heapify(heap)
        while len(heap) > 1:
            (f, _, one), (g, _, other) = heapq.heappop(heap), heapq.heappop(heap)
            for symbol in (*one, *other):
                lengths[symbol] += 1
            heapq.heappush(heap, (f + g, next(order), [*one, *other]))
        if max(lengths) <= _LONGEST_CODE:
            return lengths
        frequencies = [f and f // 2 + 1 for f in frequencies]


def _reversed_codes(lengths: list[int]) -> npt.NDArray[np.uint16]:
    """Return the canonical code of each symbol, its first bit lowest."""
    codes = np.zeros(len(lengths), np.uint16)
    code = 0
    for length in range(1, _LONGEST_CODE + 1):
        for symbol in (s for s, n in enumerate(lengths) if n == length):
            codes[symbol] = int(f"{code:0{length}b}"[::-1], 2)
            code += 1
        code <<= 1
    return codes
