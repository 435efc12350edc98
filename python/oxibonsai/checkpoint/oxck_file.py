"""OXCK, OxiBonsai's checkpoint: metadata as texts, tensors as float32, one after the other.

Little endian: ``OXCK``, u32 version 1, u64 flags (0), u64 number of tensors, u32 length of a JSON object
whose values are texts, that object, then for each tensor u32 length of its name, the name, u32 number of
dimensions, u64 for each of them (the slowest first), u64 number of values, the values.

A text of the metadata is GGUF's name of a type, a space and the value in JSON: ``u32 28``, ``str "qwen3"``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.checkpoint.lazy_model import Bytes, LazyModel
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.json_object import unique_keys

MAGIC, VERSION = b"OXCK", 1
SUFFIX = ".oxck"
_HEAD = struct.Struct("<4sIQQI")
_F32_BYTES = 4
_MOST_DIMENSIONS = 4  # GGUF's
_MOST_NAME_BYTES = 4096
_WHOLE = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")
_REAL = ("f32", "f64")
_LARGEST = {"f32": float(np.finfo(np.float32).max), "f64": float(np.finfo(np.float64).max)}
_KINDS: dict[str, Any] = {  # for isinstance()
    **dict.fromkeys(_WHOLE, int),
    **dict.fromkeys(_REAL, (int, float)),
    "bool": bool,
    "str": str,
}


@dataclass(frozen=True)
class OxckTensor:
    """A tensor of a file, as :class:`oxibonsai.checkpoint.lazy_model.LazyTensor` has them."""

    stored: StoredTensor

    quant_type = "F32"
    decodable = True
    gguf_id = 0
    as_stored = True

    @property
    def name(self) -> str:
        """Its name."""
        return self.stored.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest dimension first."""
        return self.stored.shape

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.stored.last - self.stored.first

    @property
    def sources(self) -> tuple[StoredTensor, ...]:
        """Return the tensor of the file."""
        return (self.stored,)

    def make(self) -> Bytes:
        """Return the bytes of the file."""
        return self.stored.raw()

    def done(self) -> None:
        """Take the bytes out of memory; FormatError where the file has changed."""
        self.stored.check_unchanged()
        self.stored.release()


def open_oxck(path: Path) -> LazyModel:
    """Open a file; all lengths in it are checked.

    Raises:
        FormatError: It can't be read, or breaks its format.
        UnsupportedError: It is of another version, or has flags.
    """
    try:
        file = _core.MappedFile(str(path))
    except (OSError, FormatError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    data = memoryview(file).cast("B")
    if len(data) < _HEAD.size or bytes(data[:4]) != MAGIC:
        raise FormatError(f"{path} is no OXCK file")
    _, version, flags, count, length = _HEAD.unpack(data[: _HEAD.size])
    if version != VERSION or flags != 0:
        raise UnsupportedError(
            f"{path} is an OXCK file of version {version} with flags {flags:#x}: version {VERSION} "
            "without flags is known"
        )
    cursor = _Cursor(path, data, _HEAD.size)
    metadata = _metadata(path, cursor.take(length, "the metadata"))
    tensors: dict[str, OxckTensor] = {}
    for i in range(count):  # each takes bytes of the file
        stored = _tensor(cursor, f"tensor {i}", file)
        if stored.name in tensors:
            raise FormatError(f"{path} has the tensor {stored.name!r:.80} twice")
        tensors[stored.name] = OxckTensor(stored)
    if cursor.at != len(data):
        raise FormatError(f"{path} has {len(data) - cursor.at} bytes behind its last tensor")
    file.check_unchanged()
    return LazyModel(path, metadata, list(tensors.values()))


class _Cursor:
    def __init__(self, path: Path, data: memoryview, at: int) -> None:
        self.path, self._data, self.at = path, data, at

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes; FormatError where the file is shorter."""
        self.skip(count, what)
        return bytes(self._data[self.at - count : self.at])

    def skip(self, count: int, what: str) -> None:
        """Go on behind the next bytes; FormatError where the file is shorter."""
        if count > len(self._data) - self.at:
            raise FormatError(f"{self.path} ends within {what}")
        self.at += count

    def number(self, size: int, what: str) -> int:
        """Return the next number of so many bytes."""
        return int.from_bytes(self.take(size, what), "little")


def _tensor(cursor: _Cursor, what: str, file: _core.MappedFile) -> StoredTensor:
    length = cursor.number(4, what)
    if not 1 <= length <= _MOST_NAME_BYTES:
        raise FormatError(
            f"{cursor.path}: {what} has a name of {length} bytes; it has 1 to {_MOST_NAME_BYTES}"
        )
    try:
        name = cursor.take(length, what).decode()
    except UnicodeDecodeError as e:
        raise FormatError(f"{cursor.path}: the name of {what} is no UTF-8") from e
    dimensions = cursor.number(4, what)
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise FormatError(
            f"{cursor.path}: {what} has {dimensions} dimensions; it has 1 to {_MOST_DIMENSIONS}"
        )
    shape = tuple(cursor.number(8, what) for _ in range(dimensions))
    count = cursor.number(8, what)
    if count != math.prod(shape) or count == 0:
        raise FormatError(
            f"{cursor.path}: {what} has {count} values for the shape {list(shape)!r:.100}"
        )
    first = cursor.at
    cursor.skip(_F32_BYTES * count, what)
    return StoredTensor(cursor.path, name, "F32", shape, first, cursor.at, file)


def _metadata(path: Path, text: bytes) -> Metadata:
    try:
        found = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path}: the metadata is no JSON object: {e}") from e
    if not isinstance(found, dict):
        raise FormatError(f"{path}: the metadata is no JSON object")
    if not all(key and _is_text(key) for key in found):
        raise FormatError(f"{path}: a key of the metadata is empty or no UTF-8")
    return {key: _value(path, key, told) for key, told in found.items()}


def _is_text(value: str) -> bool:
    """Return whether a text can be written; bytes that are no UTF-8 are half surrogate pairs."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _value(path: Path, key: str, told: Any) -> tuple[Any, str]:
    """Return a value and its type."""
    kind, _, text = told.partition(" ") if isinstance(told, str) else ("", "", "")
    element = kind[4:-1] if kind.startswith("arr[") and kind.endswith("]") else kind
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    items = value if element != kind and isinstance(value, list) else [value]
    whole = element == kind or isinstance(value, list)
    if not whole or element not in _KINDS or not all(_fits(item, element) for item in items):
        raise FormatError(
            f"{path}: {key!r:.80} of the metadata is {told!r:.80}; it is a type of GGUF and a value in "
            "JSON, as 'u32 28'"
        )
    return value, kind


def _fits(item: Any, element: str) -> bool:
    if not isinstance(item, _KINDS[element]) or (isinstance(item, bool) and element != "bool"):
        return False
    if element == "str":
        return _is_text(item)
    if element in _REAL:  # GGUF's f32 hold no more
        return not abs(item) > _LARGEST[element] or abs(item) == math.inf
    if element == "bool":
        return True
    bounds = np.iinfo(element.replace("u", "uint") if element[0] == "u" else f"int{element[1:]}")
    return bool(bounds.min <= item <= bounds.max)


def header(metadata: Metadata, tensors: int) -> bytes:
    """Return what stands before the first tensor."""
    told = {key: f"{kind} {json.dumps(_plain(value))}" for key, (value, kind) in metadata.items()}
    text = json.dumps(told).encode()
    return _HEAD.pack(MAGIC, VERSION, 0, tensors, len(text)) + text


def record_head(name: str, shape: tuple[int, ...]) -> Iterator[bytes]:
    """Yield what stands before the values of a tensor."""
    encoded = name.encode()
    yield struct.pack("<I", len(encoded)) + encoded
    yield struct.pack(f"<I{len(shape)}QQ", len(shape), *shape, math.prod(shape))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
