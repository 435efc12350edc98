"""The stored form of one network of a picture model: a configuration and named tensors.

Names and shapes are those of diffusers (``transformer_blocks.0.attn.to_q.weight`` ...) whatever the
files are: safetensors, MLX's packs, GGUF. Convolutions are [out, in, height, width].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError, UnsupportedError

Floats = npt.NDArray[np.float32]


class Tensors(Protocol):
    """What a kind of file offers; :class:`Part` checks what it returns.

    Attributes:
        origin: The file or folder, for error messages.
    """

    origin: str

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of all tensors, by name; of a packed matrix, those of its values."""

    def weight(self, name: str) -> _core.Weight:
        """A matrix in the stored form; FormatError where its bytes are invalid."""

    def floats(self, name: str) -> Floats:
        """A tensor as float32, in its shape."""


class Part:
    """A network's configuration and tensors, with their shapes checked against the caller's.

    Args:
        config: ``config.json`` of the network, as diffusers writes it.
        tensors: The stored tensors.
    """

    def __init__(self, config: Mapping[str, Any], tensors: Tensors) -> None:
        self.config = dict(config)
        self._tensors = tensors
        self._shapes = dict(tensors.shapes())
        self._used: set[str] = set()

    @property
    def origin(self) -> str:
        """The file or folder, for error messages."""
        return self._tensors.origin

    @property
    def names(self) -> frozenset[str]:
        """Of all tensors."""
        return frozenset(self._shapes)

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self._shapes

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor; FormatError where it is missing."""
        if name not in self._shapes:
            raise FormatError(f"{self.origin} lacks the tensor {name}")
        return self._shapes[name]

    def matrix(self, name: str, rows: int, cols: int) -> _core.Weight:
        """The tensor ``name.weight``, [rows, cols], in its stored form: packed or float."""
        full = f"{name}.weight"
        self._check(full, (rows, cols))
        return self._tensors.weight(full)

    def floats(self, name: str, *shape: int) -> Floats:
        """A tensor of any shape as float32, all of its values finite."""
        self._check(name, shape)
        values = self._tensors.floats(name)
        if not np.isfinite(values).all():
            raise FormatError(f"{self.origin}: tensor {name} holds values that are not finite")
        return values.reshape(shape)

    def leave_out(self, prefix: str) -> None:
        """Tensors that no pass of this version reads, without which the result is the same."""
        self._used |= {n for n in self._shapes if n.startswith(prefix)}

    def refuse_unused(self) -> None:
        """UnsupportedError for a tensor that nobody asked for: without it the result would be wrong."""
        if unused := sorted(self.names - self._used):
            raise UnsupportedError(
                f"{self.origin} has the tensor {unused[0]}, which this version does not use"
            )

    def count(self, key: str, default: int | None = None) -> int:
        """A positive count of the configuration; FormatError where it is missing or something else."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise FormatError(f"{self.origin}: {key} is {value!r}, not a positive count")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A positive number of the configuration."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2.0**40:
            raise FormatError(f"{self.origin}: {key} is {value!r}, not a positive number")
        return float(value)

    def counts(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of positive counts of the configuration."""
        value = self.config.get(key, default)
        counts = value if isinstance(value, list | tuple) else ()
        if not counts or any(type(v) is not int or not 0 < v < 2**31 for v in counts):
            raise FormatError(f"{self.origin}: {key} is {value!r}, not a list of positive counts")
        return tuple(counts)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        self._used.add(name)
        if (found := self.shape(name)) != shape:
            raise FormatError(
                f"{self.origin}: tensor {name} has shape {found}, but the configuration needs {shape}"
            )
