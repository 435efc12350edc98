"""A model's files with changes, read as if they were files themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.reader import Reader, TensorInfo


class Overlay:
    """A reader of what another one reads; subclasses say what differs.

    Args:
        under: The files.
    """

    def __init__(self, under: Reader) -> None:
        self._under = under

    @property
    def paths(self) -> Sequence[Path]:
        """Return the files that hold tensors."""
        return self._under.paths

    @property
    def size(self) -> int:
        """Return the bytes of all those files."""
        return self._under.size

    @property
    def version(self) -> int | None:
        """GGUF's version; None: this is no GGUF file."""
        return self._under.version

    @property
    def alignment(self) -> int:
        """Return the alignment in bytes of tensors in a file that is written of this one."""
        return self._under.alignment

    @property
    def tensors(self) -> Sequence[TensorInfo]:
        """Return the tensors in the order of the file."""
        return self._under.tensors

    def keys(self) -> list[str]:
        """Return the keys of the metadata."""
        return self._under.keys()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value."""
        return self._under.get(key, default)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a key's value that is a text; FormatError where it is something else."""
        return self._under.text(key, default)

    def metadata_type(self, key: str) -> str:
        """Return GGUF's name of the type of a key's value."""
        return self._under.metadata_type(key)

    def copy_metadata(self, writer: _core.GgufWriter, key: str) -> None:
        """Write a key with its value."""
        self._under.copy_metadata(writer, key)

    def extra_identity(self) -> bytes:
        """Return what tells the model from others besides its files."""
        return self._under.extra_identity()

    def tensor(self, name: str) -> TensorInfo:
        """Return a tensor's description; FormatError where there is none."""
        return self._under.tensor(name)

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a tensor's bytes."""
        return self._under.tensor_bytes(name)

    def weight(self, name: str) -> _core.Weight:
        """Return a tensor as a matrix of its own."""
        return self._under.weight(name)

    def release(self, name: str) -> None:
        """Take a tensor's bytes out of memory."""
        self._under.release(name)

    def check_unchanged(self) -> None:
        """Raise `FormatError` if a file has been written to since it was opened."""
        self._under.check_unchanged()
