"""A model in another form than GGUF: its keys in memory, its tensors made when they are asked for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.metadata import Metadata, as_read
from oxibonsai.checkpoint.reader import TensorInfo, text_of
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError

Bytes = npt.NDArray[np.uint8]
_ALIGNMENT = 32  # GGUF's usual one
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class LazyTensor(TensorInfo, Protocol):
    """A tensor that is made of others."""

    @property
    def sources(self) -> Sequence[StoredTensor]:
        """Return what the tensor is made of; nothing: of numbers in memory."""

    @property
    def as_stored(self) -> bool:
        """Whether its bytes are those of its one source."""

    def make(self) -> Bytes:
        """Return the tensor's bytes; a view of its source where they are the same."""

    def done(self) -> None:
        """Take the sources out of memory; FormatError where one has changed meanwhile."""


class LazyModel:
    """The tensors and the metadata that a GGUF file of a model would have.

    Args:
        path: The folder, or the file; errors name it.
        metadata: The keys, in their order.
        tensors: In the order of the file.
    """

    version = None
    alignment = _ALIGNMENT

    def __init__(self, path: Path, metadata: Metadata, tensors: Sequence[LazyTensor]) -> None:
        self._path = path
        self._written = metadata
        self._values = {key: as_read(*entry) for key, entry in metadata.items()}
        self.tensors = list(tensors)
        self._tensors = {t.name: t for t in tensors}
        sources = [source for tensor in tensors for source in tensor.sources]
        self._paths = tuple(sorted({s.path for s in sources}))
        self._files = {s.file for s in sources if s.file is not None}

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the files that hold tensors."""
        return self._paths

    @property
    def size(self) -> int:
        """Return the bytes of all tensors."""
        return sum(t.nbytes for t in self.tensors)

    def keys(self) -> list[str]:
        """Return the keys of the metadata."""
        return list(self._values)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value."""
        return self._values.get(key, default)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a key's value that is a text; FormatError where it is something else."""
        return text_of(self.get(key, default), key, self._path)

    def metadata_type(self, key: str) -> str:
        """Return GGUF's name of the type of a key's value, ``arr[NAME]`` of an array."""
        return self._written[key][1]

    def copy_metadata(self, writer: _core.GgufWriter, key: str) -> None:
        """Write a key with its value."""
        writer.add_metadata(key, *self._written[key])

    def extra_identity(self) -> bytes:
        """Return a hash of the metadata and of the tensors that no file holds."""
        digest = hashlib.blake2b(digest_size=16)
        for key, (value, value_type) in self._written.items():
            whole = list(value) if value_type.startswith("arr[") else value
            digest.update(f"{key} {value_type} {whole!r};".encode("utf-8", "surrogateescape"))
        for tensor in self.tensors:
            if not tensor.sources:
                digest.update(tensor.make().data)
        return digest.digest()

    def tensor(self, name: str) -> LazyTensor:
        """Return a tensor's description."""
        if name not in self._tensors:
            raise FormatError(f"{self._path} has no tensor {name}")
        return self._tensors[name]

    def tensor_bytes(self, name: str) -> Bytes:
        """Return a tensor's bytes, which are made now unless a file has them as they are."""
        tensor = self.tensor(name)
        made = tensor.make()
        if not tensor.as_stored:
            tensor.done()
        return made

    def weight(self, name: str) -> _core.Weight:
        """Return a tensor as a matrix of its own: mapped, or made while a device packs it."""
        tensor = self.tensor(name)
        *outer, cols = tensor.shape
        rows = outer[-1] if outer else 1
        experts = math.prod(outer[:-1])
        if tensor.as_stored and _is_mapped(tensor):
            blocks = tensor.make().reshape(experts * rows, -1)
            return _core.Weight.from_blocks(name, tensor.quant_type, blocks, cols, experts)

        def write(out: Bytes) -> None:
            out[:] = tensor.make()
            tensor.done()

        return _core.Weight.computed(name, tensor.quant_type, rows, cols, experts, write)

    def release(self, name: str) -> None:
        """Take the files' bytes that a tensor is made of out of memory."""
        for source in self.tensor(name).sources:
            source.release()

    def check_unchanged(self) -> None:
        """Raise `FormatError` if a file has been written to since it was opened."""
        for file in self._files:
            file.check_unchanged()


def _is_mapped(tensor: LazyTensor) -> bool:
    """Return whether a file has a tensor's bytes where numbers of their size can be read."""
    (source,) = tensor.sources
    size = _ITEM_BYTES.get(tensor.quant_type, 1)
    return source.file is not None and source.first % size == 0
