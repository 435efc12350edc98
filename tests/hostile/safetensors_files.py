"""Malformed safetensors files, made by programs: each differs from a valid one in a single lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from mutations import JUNK

DATA = bytes(range(64))


def entry(
    first: Any = 0, last: Any = 64, shape: Any = (16,), dtype: Any = "F32", **more: Any
) -> dict[str, Any]:
    """What a header says of one tensor."""
    shape = list(shape) if isinstance(shape, tuple) else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last], **more}


def file(header: Any, data: bytes = DATA, length: int | None = None) -> bytes:
    """A whole file; the header is a document or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


VALID = file(
    {"a": entry(0, 32, (4, 2)), "b": entry(32, 64, (16,), "BF16"), "__metadata__": {"format": "pt"}}
)


def _headers() -> Iterator[tuple[str, bytes]]:
    good = {"a": entry()}
    yield "empty", b""
    yield "seven bytes", bytes(7)
    yield "GGUF", b"GGUF" + bytes(100)
    yield "text", b"<!DOCTYPE html><html>not a model</html>" * 10
    size = len(json.dumps(good))
    lengths = (0, 1, size - 1, size + 1, size + 65, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64 - 1)
    for length in lengths:
        yield f"header of {length} bytes claimed", file(good, length=length)
    texts = (b"{", b"}", b"[]", b"null", b"1", b'"a"', b"{}x", b"\xef\xbb\xbf{}", b"\0", b'{"a":}')
    for text in texts:
        yield f"header {text!r}", file(text)
    yield "no UTF-8", file(b'{"\xff": 1}')
    yield "half a surrogate", file(b'{"\\ud800": ' + json.dumps(entry()).encode() + b"}")
    yield "NaN for an offset", file(b'{"a":{"dtype":"F32","shape":[16],"data_offsets":[0,NaN]}}')
    for depth in (200, 5000, 100_000):
        yield f"{depth} objects deep", file(b'{"a":' * depth + b"1" + b"}" * depth)
        yield f"{depth} lists deep", file(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
    yield "data without a tensor", file({})


def _entries() -> Iterator[tuple[str, bytes]]:
    for field in ("dtype", "shape", "data_offsets"):
        lacking = {k: v for k, v in entry().items() if k != field}
        yield f"no {field}", file({"a": lacking})
        for value in JUNK:
            yield f"{field} of {str(value)[:24]!r}", file({"a": {**entry(), field: value}})
    for value in JUNK:
        yield f"an entry of {str(value)[:24]!r}", file({"a": value})
    for dtype in ("F31", "f32", "F32 ", "Q4_0", "BOOL8"):
        yield f"type {dtype!r}", file({"a": entry(dtype=dtype)})
    for first, last in (
        (0, 63),
        (0, 65),
        (1, 64),
        (1, 65),
        (64, 0),
        (64, 128),
        (-1, 63),
        (0, 2**63),
    ):
        yield f"offsets {first} {last}", file({"a": entry(first, last)})
    yield "offsets 2**63", file({"a": entry(2**63, 2**63 + 64)})
    yield "three offsets", file({"a": {**entry(), "data_offsets": [0, 32, 64]}})
    for shape in (
        (3,),
        (17,),
        (2**62, 2**62),
        (2**63,),
        (2**64,),
        (2**32, 2**32),
        (-16,),
        (-4, -4),
    ):
        yield f"shape {shape}", file({"a": entry(shape=shape)})
    yield "overlap", file({"a": entry(0, 32, (8,)), "b": entry(16, 64, (12,))})
    yield "hole", file({"a": entry(0, 16, (4,)), "b": entry(32, 64, (8,))})
    yield "hole at the start", file({"a": entry(16, 64, (12,))})
    yield "same place twice", file({"a": entry(), "b": entry()})
    yield "data cut by a byte", file({"a": entry()}, DATA[:-1])
    yield "a byte too many", file({"a": entry()}, DATA + b"\0")
    yield "no data", file({"a": entry()}, b"")
    for value in (1, "x", [], {"a": 1}, {"a": None}):
        yield f"__metadata__ of {value!r}", file({"a": entry(), "__metadata__": value})


def malformed() -> list[tuple[str, bytes]]:
    """Every file with a name that says what is wrong."""
    return [*_headers(), *_entries()]
