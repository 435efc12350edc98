"""The protocol of what reads a model's files: metadata by GGUF's keys, tensors by GGUF's names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError


class TensorInfo(Protocol):
    """The facts about a tensor that need no look at its bytes."""

    @property
    def name(self) -> str:
        """GGUF's name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest dimension first."""

    @property
    def quant_type(self) -> str:
        """The stored format of the weights."""

    @property
    def decodable(self) -> bool:
        """Whether this version knows the format."""

    @property
    def gguf_id(self) -> int:
        """GGUF's number of the format."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


class Reader(Protocol):
    """A model's files, opened; metadata and tensors as one GGUF file has them."""

    @property
    def paths(self) -> Sequence[Path]:
        """Return the files that hold tensors; the first one's name stands in errors."""

    @property
    def size(self) -> int:
        """Return the bytes of all those files."""

    @property
    def version(self) -> int | None:
        """GGUF's version; None: this is no GGUF file."""

    @property
    def alignment(self) -> int:
        """Return the alignment in bytes of tensors in a file that is written of this one."""

    @property
    def tensors(self) -> Sequence[TensorInfo]:
        """Return the tensors in the order of the file."""

    def keys(self) -> list[str]:
        """Return the keys of the metadata."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value."""

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a key's value that is a text; FormatError where it is something else."""

    def metadata_type(self, key: str) -> str:
        """Return GGUF's name of the type of a key's value, ``arr[NAME]`` of an array."""

    def copy_metadata(self, writer: _core.GgufWriter, key: str) -> None:
        """Write a key with its value."""

    def extra_identity(self) -> bytes:
        """Return what tells the model from others besides its files."""

    def tensor(self, name: str) -> TensorInfo:
        """Return a tensor's description; FormatError where there is none."""

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a tensor's stored bytes."""

    def weight(self, name: str) -> _core.Weight:
        """Return a tensor as a matrix of its own."""

    def release(self, name: str) -> None:
        """Take a tensor's bytes out of memory; the next look at them reads the file again."""

    def check_unchanged(self) -> None:
        """Raise `FormatError` if a file has been written to since it was opened."""


def text_of(value: Any, key: str, path: Path) -> str | None:
    """Return a value that must be a text, or None.

    Raises:
        FormatError: It is something else, or no UTF-8.
    """
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{path}: {key} is {value!r:.80}, not a text")
    if value is not None and not _is_utf8(value):
        raise FormatError(f"{path}: {key} is {value!r:.80}, which is no UTF-8")
    return value


def _is_utf8(value: str) -> bool:
    """Return whether a text of the metadata was valid; other bytes come as half surrogate pairs."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
