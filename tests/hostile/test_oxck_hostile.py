"""Malformed OXCK files cost one clear error: never a crash, a hang or much memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import JUNK, LittleMemory, edits, flips, ids, prefixes, refused

from oxibonsai.checkpoint.oxck_file import open_oxck
from oxibonsai.errors import FormatError, UnsupportedError

KEYS = {
    "general.architecture": 'str "qwen3"',
    "qwen3.block_count": "u32 2",
    "qwen3.rope.freq_base": "f32 10000.0",
    "tokenizer.ggml.tokens": 'arr[str] ["a", "b"]',
}
DATA = np.arange(6, dtype="<f4").tobytes()


def record(
    name: bytes = b"a.weight",
    shape: tuple[int, ...] = (2, 3),
    values: int | None = None,
    data: bytes = DATA,
) -> bytes:
    """One tensor, by the description of the format and not by the package's own writer."""
    count = int(np.prod(shape)) if values is None else values
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return struct.pack("<I", len(name)) + name + dims + struct.pack("<Q", count) + data


def whole(
    *records: bytes,
    magic: bytes = b"OXCK",
    version: int = 1,
    flags: int = 0,
    count: int | None = None,
    metadata: Any = None,
    length: int | None = None,
) -> bytes:
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata or KEYS).encode()
    number = len(records) if count is None else count
    size = len(text) if length is None else length
    return magic + struct.pack("<IQQI", version, flags, number, size) + text + b"".join(records)


VALID = whole(record(), record(b"b.bias", (6,)))
HEADER = len(VALID) - len(DATA)
MALFORMED: list[tuple[str, Any]] = [
    ("nothing", b""),
    ("another magic", whole(record(), magic=b"OXCL")),
    ("a GGUF file", b"GGUF" + VALID[4:]),
    ("trailing bytes", VALID + b"\0"),
    ("one more tensor", whole(record(), count=2)),
    ("one tensor fewer", whole(record(), record(b"b"), count=1)),
    ("tensors without end", whole(record(), count=2**64 - 1)),
    ("metadata beyond the file", whole(record(), length=2**32 - 1)),
    ("metadata cut", whole(record(), length=10)),
    ("metadata of nothing", whole(record(), metadata=b"")),
    ("metadata that is a list", whole(record(), metadata=b"[]")),
    ("metadata nested deeply", whole(record(), metadata=b"[" * 100_000)),
    ("metadata no UTF-8", whole(record(), metadata=b'{"a": "\xff"}')),
    ("a key twice", whole(record(), metadata=b'{"a": "u32 1", "a": "u32 2"}')),
    ("an empty key", whole(record(), metadata={"": "u32 1"})),
    ("a key of half a pair", whole(record(), metadata=b'{"\\ud800": "u32 1"}')),
    ("a tensor twice", whole(record(), record())),
    ("no name", whole(record(b""))),
    ("a name beyond the file", whole(struct.pack("<I", 2**32 - 1) + b"a")),
    ("a name no UTF-8", whole(record(b"\xff"))),
    ("no dimension", whole(record(shape=()))),
    ("five dimensions", whole(record(shape=(1, 1, 1, 2, 3)))),
    ("dimensions without end", whole(struct.pack("<I1sI", 1, b"a", 2**32 - 1))),
    ("an empty dimension", whole(record(shape=(0, 3), data=b""))),
    ("fewer values", whole(record(values=5))),
    ("more values", whole(record(values=7))),
    ("a product beyond u64", whole(record(shape=(2**63, 2**63, 4), values=0, data=b""))),
    ("values beyond the file", whole(record(shape=(2**40, 3)))),
    *(
        (f"metadata {told!r:.40}", whole(record(), metadata={"a": told}))
        for told in (
            *("", "u32", "u32 ", "u32 x", "u32 -1", "u32 4294967296", "u8 256", "i8 -129", "u32 1.5"),
            *("u32 true", "bool 1", "bool x", "str a", "str 1", 'str "\\ud800"', "f32 1e39", "f32 null"),
            *(f"f64 {10**400}", "f128 1", "arr[u32] 1", "arr[u32] [-1]", "arr[str] [1]", "arr[x] []"),
            *("arr[arr[u32]] [[1]]", "arr[u32 [1]", "u32 [1]", "arr[f32] [[1.0]]"),
        )
    ),
    *(
        (f"a value {value!r:.30} of {i}", whole(record(), metadata={"a": value}))
        for i, value in enumerate(JUNK)
    ),
]  # fmt: skip


def opened(path: Path, files: Iterable[bytes]) -> int:
    """How many of the files open, all tensors of each within it."""
    count = 0
    for data in files:
        path.write_bytes(data)
        if refused(lambda: open_oxck(path), repr(data)):
            continue
        count += 1
        model = open_oxck(path)
        for tensor in model.tensors:
            assert tensor.make().tobytes() in data
            assert tensor.nbytes == 4 * int(np.prod(tensor.shape))
    return count


@pytest.mark.timeout(60)
@pytest.mark.parametrize("data", ids(MALFORMED))
def test_malformed_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.oxck"
    path.write_bytes(data)
    with LittleMemory(), pytest.raises(FormatError) as error:
        open_oxck(path)
    assert "model.oxck" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("changed", [{"version": 2}, {"version": 0}, {"flags": 1}], ids=str)
def test_other_versions_are_named(changed: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "model.oxck"
    path.write_bytes(whole(record(), **changed))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="version"):
        open_oxck(path)


def test_the_valid_file_opens_and_any_float_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "model.oxck"
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38], "<f4").tobytes()
    path.write_bytes(whole(record(), record(b"b.bias", (6,), data=odd)))
    model = open_oxck(path)
    assert [(t.name, t.shape) for t in model.tensors] == [("a.weight", (2, 3)), ("b.bias", (6,))]
    assert model.tensor_bytes("a.weight").tobytes() == DATA
    assert model.tensor_bytes("b.bias").tobytes() == odd
    assert model.get("qwen3.block_count") == 2
    assert model.get("tokenizer.ggml.tokens") == ["a", "b"]


def test_no_prefix_of_a_file_opens(tmp_path: Path) -> None:
    assert opened(tmp_path / "model.oxck", prefixes(VALID, HEADER)) == 0


def test_flipped_bytes_give_one_error_or_tensors_within_the_file(tmp_path: Path) -> None:
    opened(tmp_path / "model.oxck", flips(VALID, HEADER))


def test_random_damage_gives_one_error_or_tensors_within_the_file(tmp_path: Path) -> None:
    opened(tmp_path / "model.oxck", edits(VALID, 2000, 5))
