"""Malformed GGUF files, made by programs: each differs from a valid one in a single lie."""

from __future__ import annotations

import struct
from collections.abc import Iterator

U64_MAX = 2**64 - 1


def u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value & U64_MAX)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + u32(kind) + value


def tensor(
    name: str | bytes = "t", dims: tuple[int, ...] = (64,), kind: int = 0, offset: int = 0
) -> bytes:
    return string(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


def gguf(
    entries: tuple[bytes, ...] = (entry("general.architecture", 8, string("llama")),),
    tensors: tuple[bytes, ...] = (tensor(),),
    data: bytes = bytes(256),
    *,
    magic: bytes = b"GGUF",
    version: bytes = u32(3),
    tensor_count: int | None = None,
    entry_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    head = magic + version
    head += u64(len(tensors) if tensor_count is None else tensor_count)
    head += u64(len(entries) if entry_count is None else entry_count)
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def every_value_type(*, nested: bool = True) -> bytes:
    """A valid file with a value and an array of each type, and perhaps an array of arrays."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    entries = [entry("general.architecture", 8, string("llama"))]
    entries.append(entry("general.alignment", 4, u32(64)))
    for kind, size in sizes.items():
        entries.append(entry(f"value{kind}", kind, bytes(size)))
        entries.append(entry(f"array{kind}", 9, u32(kind) + u64(2) + bytes(2 * size)))
    entries.append(entry("texts", 9, u32(8) + u64(2) + string("a") + string("é")))
    if nested:
        entries.append(entry("arrays", 9, u32(9) + u64(1) + u32(4) + u64(1) + bytes(4)))
    return gguf(tuple(entries), (tensor("t", (32,)),), bytes(128), alignment=64)


def many_tensors(count: int) -> bytes:
    """A valid file with that many tensors of 8 values, and keys."""
    entries = [entry("general.architecture", 8, string("llama"))]
    entries += [entry(f"llama.some.key{i}", 4, u32(i)) for i in range(count)]
    tensors = [tensor(f"blk.{i}.attn_norm.weight", (8,), offset=32 * i) for i in range(count)]
    return gguf(tuple(entries), tuple(tensors), bytes(32 * count))


def _headers() -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "magic alone", b"GGUF"
    yield "other magic", gguf(magic=b"GGML")
    yield "magic of a zip", b"PK\x03\x04" + bytes(500)
    yield "text", b"<!DOCTYPE html><html>not a model</html>" * 10
    for version in (0, 1, 4, 2**31, 2**32 - 1):
        yield f"version {version}", gguf(version=u32(version))
    yield "big-endian", gguf(version=struct.pack(">I", 3))
    for count in (2, 100, 2**31, 2**32, 2**60, 2**63, U64_MAX):
        yield f"{count} tensors claimed", gguf(tensor_count=count)
        yield f"{count} entries claimed", gguf(entry_count=count)


def _metadata() -> Iterator[tuple[str, bytes]]:
    good = entry("general.architecture", 8, string("llama"))
    for length in (2**16, 2**31, 2**40, 2**63, U64_MAX):
        yield f"key of {length} bytes", gguf(entries=(u64(length) + b"general.x",))
        yield f"text of {length} bytes", gguf(entries=(entry("a", 8, u64(length) + b"x"),))
        yield f"array of {length} bytes", gguf(entries=(entry("a", 9, u32(0) + u64(length)),))
        yield f"array of {length} numbers", gguf(entries=(entry("a", 9, u32(6) + u64(length)),))
        yield f"array of {length} texts", gguf(entries=(entry("a", 9, u32(8) + u64(length)),))
        yield f"array of {length} arrays", gguf(entries=(entry("a", 9, u32(9) + u64(length)),))
    for kind in (13, 14, 255, 2**31, 2**32 - 1):
        yield f"value type {kind}", gguf(entries=(entry("a", kind, u64(0)),))
        yield f"array of value type {kind}", gguf(entries=(entry("a", 9, u32(kind) + u64(1)),))
    yield "empty key", gguf(entries=(entry("", 4, u32(1)),))
    yield "key with a zero byte", gguf(entries=(entry(b"a\0b", 4, u32(1)),))
    for raw in (b"\xff", b"a\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"):
        yield f"key of bytes {raw.hex()}", gguf(entries=(entry(raw, 4, u32(1)),))
    yield "same key twice", gguf(entries=(good, good))
    yield "bool of 2", gguf(entries=(entry("a", 7, b"\x02"),))
    yield "array with a bool of 9", gguf(entries=(entry("a", 9, u32(7) + u64(2) + b"\x01\x09"),))
    nested = u32(0) + u64(0)
    for _ in range(20):
        nested = u32(9) + u64(1) + nested
    yield "arrays nested 20 deep", gguf(entries=(entry("a", 9, nested),))
    yield "alignment 0", gguf(entries=(entry("general.alignment", 4, u32(0)),))
    yield "alignment 3", gguf(entries=(entry("general.alignment", 4, u32(3)),))
    yield "alignment 2**32 - 1", gguf(entries=(entry("general.alignment", 4, u32(2**32 - 1)),))
    yield "alignment as u64", gguf(entries=(entry("general.alignment", 10, u64(32)),))
    yield "alignment as text", gguf(entries=(entry("general.alignment", 8, string("32")),))
    yield "alignment past the end", gguf(entries=(entry("general.alignment", 4, u32(2**31)),))


def _tensors() -> Iterator[tuple[str, bytes]]:
    yield "no dimensions", gguf(tensors=(tensor(dims=()),))
    yield "five dimensions", gguf(tensors=(tensor(dims=(4, 2, 2, 2, 2)),))
    yield "2**32 - 1 dimensions", gguf(tensors=(string("t") + u32(2**32 - 1) + u64(1) * 8,))
    yield "dimension 0", gguf(tensors=(tensor(dims=(0,)),))
    yield "second dimension 0", gguf(tensors=(tensor(dims=(64, 0)),))
    for dims in (
        (2**63,),
        (U64_MAX,),
        (2**32, 2**32),
        (2**62, 4),
        (2**42 + 1, 2**22),
        (2**21,) * 4,
    ):
        yield f"dimensions {dims}", gguf(tensors=(tensor(dims=dims),))
    for kind in (4, 5, 31, 32, 33, 37, 38):
        yield f"retired type {kind}", gguf(tensors=(tensor(kind=kind),))
    for kind in (45, 46, 99, 141, 144, 2**31, 2**32 - 1):
        yield f"unknown type {kind}", gguf(tensors=(tensor(kind=kind),))
    widths = ((2, 33), (8, 16), (12, 128), (41, 64), (142, 64), (143, 120), (34, 128), (36, 64))
    for kind, width in widths:
        yield f"type {kind} with rows of {width}", gguf(tensors=(tensor(dims=(width,), kind=kind),))
    for offset in (1, 32, 2**31, 2**63, U64_MAX, U64_MAX - 31):
        yield f"offset {offset}", gguf(tensors=(tensor(offset=offset),))
    yield "overlap", gguf(tensors=(tensor("a"), tensor("b", offset=0)))
    yield "gap", gguf(tensors=(tensor("a", dims=(8,)), tensor("b", dims=(8,), offset=64)))
    yield "unaligned", gguf(tensors=(tensor("a", dims=(4,)), tensor("b", dims=(4,), offset=16)))
    yield "same name twice", gguf(tensors=(tensor("a", (8,)), tensor("a", (8,), offset=32)))
    yield "empty name", gguf(tensors=(tensor(""),))
    yield "name with a zero byte", gguf(tensors=(tensor(b"a\0"),))
    yield (
        "name of 2**60 bytes",
        gguf(tensors=(u64(2**60) + b"t" + u32(1) + u64(64) + u32(0) + u64(0),)),
    )
    yield "data cut by a byte", gguf(data=bytes(255))
    yield "no data", gguf(data=b"")
    yield "I2_S without its scale", gguf(tensors=(tensor(dims=(1024,), kind=36),))
    yield "header without padding", gguf(data=b"")[:-20]
    yield (
        "type 42 with rows of 60",
        gguf(tensors=(tensor(dims=(60, 64), kind=42),), data=bytes(4000)),
    )
    yield "type 42 cut short", gguf(tensors=(tensor(dims=(256, 64), kind=42),), data=bytes(4000))
    yield "type 42 too long", gguf(tensors=(tensor(dims=(256, 64), kind=42),), data=bytes(9000))
    yield "type 42 at offset 2**63", gguf(tensors=(tensor(dims=(256, 64), kind=42, offset=2**63),))


def malformed() -> list[tuple[str, bytes]]:
    """Every file with a name that says what is wrong."""
    return [*_headers(), *_metadata(), *_tensors()]
