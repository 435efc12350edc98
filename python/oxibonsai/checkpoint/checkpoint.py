"""A model: its metadata and its tensors. What its keys mean is known by the architectures."""

from __future__ import annotations

import hashlib
import os
import weakref
from contextlib import ExitStack
from copy import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.checkpoint.reader import Reader
from oxibonsai.errors import FormatError, UnsupportedError

_SAMPLE_BYTES = 16 << 20  # more than the metadata of any vocabulary
_SAMPLES, _SMALL_SAMPLE_BYTES = 256, 4096


class Checkpoint:
    """A model, opened and checked, not yet packed.

    Args:
        path: A GGUF file, or any shard of a split one, which stands for all.
        quant_type: Layout of the tensors of type id 42, where the file leaves it open.
        reader: Of the model that ``path`` names; None: it is that GGUF file.

    Raises:
        SourceError: Shards are missing; they are named.
        FormatError: The file is damaged or lacks something that its architecture needs.
        UnsupportedError: It is valid, but asks for what this version does not implement.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        quant_type: str = "",
        *,
        reader: Reader | None = None,
    ) -> None:
        self.path = path = Path(path)
        self.file: Reader = GgufModel.open(path, quant_type) if reader is None else reader
        self._tensors = {t.name: t for t in self.file.tensors}
        self._architecture: str | None = None
        self._fingerprint: str | None = None
        self._identity: str | None = None
        self._keeper: object = None

    def part(self, architecture: str, prefixes: tuple[str, ...]) -> Checkpoint:
        """Return the tensors whose names begin with one of the prefixes as a model of another architecture.

        Metadata is that of the whole file.
        """
        part = copy(self)
        part._architecture = architecture
        part._tensors = {n: t for n, t in self._tensors.items() if n.startswith(prefixes)}
        return part

    @property
    def architecture(self) -> str:
        """``general.architecture``; FormatError where the file names none, or is no model."""
        if self._architecture is not None:
            return self._architecture
        name = self.file.text("general.architecture")
        if name is None:
            raise FormatError(f"{self.path}: general.architecture is missing")
        if self.file.text("general.type") == "adapter":
            raise FormatError(
                f"{self.path} is an adapter, no model: give it with --lora, beside one"
            )
        return name

    @property
    def has_weights(self) -> bool:
        """False for a vocabulary-only file."""
        return bool(self._tensors)

    @property
    def has_tokenizer(self) -> bool:
        """False for a file of weights alone."""
        return self.file.text("tokenizer.ggml.model") not in (None, "none", "no_vocab")

    @property
    def trained_context(self) -> int | None:
        """Positions that the model was trained on; None where the file does not say it."""
        length = self.file.get(f"{self.file.text('general.architecture')}.context_length")
        return length if isinstance(length, int) and length > 0 else None

    def fingerprint(self) -> str:
        """Return a hash of the tensors and of each file's size, head and tail; names have no part in it."""
        if self._fingerprint is None:
            digest = hashlib.blake2b(digest_size=16)
            for t in self.file.tensors:
                digest.update(f"{t.name} {t.shape} {t.quant_type};".encode())
            digest.update(self.file.extra_identity())
            for path in self.file.paths:
                with path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    digest.update(str(size).encode())
                    for start in (0, max(size - _SAMPLE_BYTES, 0)):
                        file.seek(start)
                        digest.update(file.read(_SAMPLE_BYTES))
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def identity(self) -> str:
        """Return a name of the files as they are: a hash of size, time of change and samples of each."""
        if self._identity is None:
            digest = hashlib.blake2b(digest_size=16)
            digest.update(self.file.extra_identity())
            for path in self.file.paths:
                with path.open("rb") as file:
                    status = os.fstat(file.fileno())
                    digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
                    for i in range(_SAMPLES):
                        file.seek(status.st_size * i // _SAMPLES)
                        digest.update(file.read(_SMALL_SAMPLE_BYTES))
            self._identity = digest.hexdigest()
        return self._identity

    def remember_identity(self, source: str | os.PathLike[str], keeper: object = None) -> None:
        """Prepare for the files to lose their names.

        Args:
            source: What errors name from now on.
            keeper: What ``source`` lives as long as.
        """
        self.fingerprint()
        self.identity()
        self.path = Path(source)
        self._keeper = keeper

    def keep(self, folder: ExitStack) -> None:
        """Close this, which removes the folder at :attr:`path`, with the last user of the checkpoint."""
        weakref.finalize(self.file, folder.close)

    @property
    def tensor_names(self) -> set[str]:
        """Names of all tensors."""
        return set(self._tensors)

    def has(self, name: str) -> bool:
        """Return whether the file holds a tensor of that name."""
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, slowest dimension first."""
        if name not in self._tensors:
            raise FormatError(f"{self.path} lacks the tensor {name}")
        return tuple(self._tensors[name].shape)

    def weight(self, name: str) -> _core.Weight:
        """Return a matrix in its stored form, shared with whoever asks again by the caller's care."""
        if name not in self._tensors:
            raise FormatError(f"{self.path} lacks the tensor {name}")
        return self.file.weight(name)

    def vector(self, name: str) -> npt.NDArray[np.float32]:
        """Return a one-dimensional tensor as float32, checked to be finite."""
        info = self._tensors.get(name)
        if info is None:
            raise FormatError(f"{self.path} lacks the tensor {name}")
        if not info.decodable:
            raise UnsupportedError(f"{self.path}: tensor {name} has type {info.quant_type}")
        values = _core.decode(info.quant_type, self.file.tensor_bytes(name))
        self.file.check_unchanged()
        if not np.isfinite(values).all():
            raise FormatError(f"{self.path}: tensor {name} holds values that are not finite")
        return values
