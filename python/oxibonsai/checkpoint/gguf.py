"""A model's GGUF file, or the set of files that it is split into, read as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.i2_s import I2_S, I2sTensor
from oxibonsai.checkpoint.reader import TensorInfo, text_of
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.shards import require_shards, split_info

# What llama.cpp's splitter writes into every shard, and the identity that ours adds.
SPLIT_NUMBER = "split.no"
SPLIT_COUNT = "split.count"
SPLIT_TENSORS = "split.tensors.count"
SPLIT_SET = "split.set"
SPLIT_KEYS = (SPLIT_NUMBER, SPLIT_COUNT, SPLIT_TENSORS, SPLIT_SET)


class GgufModel:
    """All tensors of a model with the metadata of its first file.

    Attributes:
        shards: The files, the first shard first; one for a model that is not split.
        tensors: Of all shards, in their order; those of I2_S as what they are read as.

    Raises:
        FormatError: A shard is damaged, appears twice or belongs to another model; it is named.
    """

    def __init__(self, shards: Sequence[_core.GgufFile]) -> None:
        self.shards = tuple(shards)
        self._first = self.shards[0]
        if len(self.shards) > 1:
            _check_set(self.shards)
        self._shard_of: dict[str, _core.GgufFile] = {}
        self.tensors: list[TensorInfo] = []
        for shard in self.shards:
            for tensor in shard.tensors:
                if (other := self._shard_of.setdefault(tensor.name, shard)) is not shard:
                    raise FormatError(
                        f"{shard.path} holds the tensor {tensor.name}, which {other.path} holds too: "
                        "one of them belongs to another model"
                    )
                is_i2_s = tensor.quant_type == I2_S
                self.tensors.append(I2sTensor(tensor, shard.path) if is_i2_s else tensor)
        if len(self.shards) > 1:
            self._check_total()
        self._infos = {t.name: t for t in self.tensors}

    @classmethod
    def open(cls, path: Path, quant_type: str = "") -> GgufModel:
        """Return a file, or the whole set that a shard's name stands for.

        Args:
            path: The file, or any of the shards.
            quant_type: Layout of the tensors of type id 42, where the files leave it open.

        Raises:
            SourceError: Shards are missing; they are named.
            FormatError: A file is damaged, a shard out of place; it is named.
        """
        info = split_info(path)
        if info is None or info.count == 1:
            file = _core.GgufFile(str(path), quant_type)
            _refuse_renamed(file)
            return cls([file])
        names = require_shards(str(path), lambda n: Path(n).is_file(), f"the folder {path.parent}")
        return cls([_core.GgufFile(name, quant_type) for name in names])

    @classmethod
    def open_alone(cls, path: Path, quant_type: str = "") -> GgufModel:
        """Open one file by itself, also where it is a shard of a set that is not here."""
        return cls([_core.GgufFile(str(path), quant_type)])

    @property
    def version(self) -> int:
        """GGUF's, of the first file."""
        return self._first.version

    @property
    def alignment(self) -> int:
        """Return the alignment in bytes of the tensors in the first file."""
        return self._first.alignment

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(s.size for s in self.shards)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the paths of the files, the first shard first."""
        return tuple(Path(s.path) for s in self.shards)

    def keys(self) -> list[str]:
        """Return the keys of the metadata."""
        return self._first.keys()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value."""
        return self._first.get(key, default)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a key's value that is a text; None where there is none, and no default.

        Raises:
            FormatError: It is something else, or no UTF-8.
        """
        return text_of(self.get(key, default), key, self.paths[0])

    def metadata_type(self, key: str) -> str:
        """Return GGUF's name of the type of a key's value, ``arr[NAME]`` of an array.

        Raises:
            UnsupportedError: It is an array of arrays.
        """
        value = self._first.get(key)
        if isinstance(value, np.ndarray):
            return f"arr[{value.dtype.kind}{8 * value.dtype.itemsize}]"
        if not isinstance(value, list):
            return str(self._first.metadata_type(key))
        if any(isinstance(item, list | np.ndarray) for item in value):
            raise UnsupportedError(f"{self._first.path}: {key} is an array of arrays")
        return "arr[bool]" if value and isinstance(value[0], bool) else "arr[str]"

    def copy_metadata(self, writer: _core.GgufWriter, key: str) -> None:
        """Write a key with its value, byte for byte."""
        writer.copy_metadata(self._first, key)

    def extra_identity(self) -> bytes:
        """Return nothing: the files hold all that there is."""
        return b""

    def tensor(self, name: str) -> TensorInfo:
        """Return a tensor's description."""
        if name not in self._infos:
            raise FormatError(f"{self._first.path} has no tensor {name}")
        return self._infos[name]

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a tensor's bytes: a read-only view of the file, except of I2_S."""
        stored, tensor = self._shard(name).tensor_bytes(name), self.tensor(name)
        return tensor.blocks(stored) if isinstance(tensor, I2sTensor) else stored

    def check_unchanged(self) -> None:
        """Raise `FormatError` if a file has been written to since it was opened.

        Tensors are mapped: what was read of them may be of another file then.
        """
        for shard in self.shards:
            shard.check_unchanged()

    def release(self, name: str) -> None:
        """Take a tensor's bytes out of memory; the next look at them reads the file again."""
        self._shard(name).release(name)

    def weight(self, name: str) -> _core.Weight:
        """Return a tensor as a matrix of its own: mapped, or of I2_S made while a device packs it."""
        shard, tensor = self._shard(name), self.tensor(name)
        if not isinstance(tensor, I2sTensor):
            return _core.Weight(shard, name)
        *outer, cols = tensor.shape
        rows = outer[-1] if outer else 1

        def write(out: npt.NDArray[np.uint8]) -> None:
            out[:] = tensor.blocks(shard.tensor_bytes(name))
            shard.release(name)
            shard.check_unchanged()

        experts = math.prod(outer[:-1])
        return _core.Weight.computed(name, tensor.quant_type, rows, cols, experts, write)

    def _shard(self, name: str) -> _core.GgufFile:
        shard = self._shard_of.get(name)
        if shard is None:
            raise FormatError(f"{self._first.path} has no tensor {name}")
        return shard

    def _check_total(self) -> None:
        claimed = self._first.get(SPLIT_TENSORS)
        if claimed != len(self.tensors):
            raise FormatError(
                f"{self._first.path}: the set has {len(self.tensors)} tensors, but {SPLIT_TENSORS} says "
                f"{claimed!r}: a shard is damaged or belongs to another model"
            )


def _refuse_renamed(file: _core.GgufFile) -> None:
    """Raise an error for a shard whose file name hides its number."""
    count = file.get(SPLIT_COUNT, 0)
    if isinstance(count, int) and count > 1:
        place = 1 if file.get(SPLIT_NUMBER) is None else _integer(file, SPLIT_NUMBER) + 1
        raise FormatError(
            f"{file.path} is shard {place} of {count} by its {SPLIT_NUMBER}, but its name does not say "
            f"so: give all shards their names back, NAME-{place:05d}-of-{count:05d}.gguf, or merge them"
        )


def _check_set(shards: Sequence[_core.GgufFile]) -> None:
    """Check that each file is the shard that its position says, and of the same set as the first."""
    first, seen = shards[0], dict[int, str]()
    for shard in shards:
        number, count = _integer(shard, SPLIT_NUMBER), _integer(shard, SPLIT_COUNT)
        if count != len(shards):
            raise FormatError(
                f"{shard.path} is a shard of another model: its {SPLIT_COUNT} is {count}, the set has "
                f"{len(shards)} files"
            )
        for key in (SPLIT_TENSORS, SPLIT_SET):
            if str(shard.get(key)) != str(first.get(key)):
                raise FormatError(
                    f"{shard.path} is a shard of another model: its {key} is {shard.get(key)}, that of "
                    f"{first.path} is {first.get(key)}"
                )
        if (other := seen.setdefault(number, shard.path)) != shard.path:
            raise FormatError(
                f"{shard.path} and {other} are both shard {number + 1} of {count}: one is a duplicate in "
                "the place of another shard"
            )
    for place, shard in enumerate(shards):
        if (number := _integer(shard, SPLIT_NUMBER)) != place:
            raise FormatError(
                f"{shard.path} is shard {number + 1} of {len(shards)} by its {SPLIT_NUMBER}, but has the "
                f"place of shard {place + 1}: its name is wrong"
            )


def _integer(shard: _core.GgufFile, key: str) -> int:
    value = shard.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{shard.path}: {key} is {value!r}: it is no shard of a split model")
    return value
