"""The parameters of a network that draws, by the names that diffusers gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError, UnsupportedError

Array = npt.NDArray[np.float32]
Config = TypeVar("Config")


def checked_config(
    read: Callable[[Mapping[str, Any]], Config], config: Mapping[str, Any], path: str
) -> Config:
    """Return ``read``'s result for a configuration; FormatError where a type is wrong."""
    try:
        return read(config)
    except (TypeError, ValueError, ArithmeticError) as e:
        raise FormatError(f"{path}: its configuration makes no sense: {e!r}") from e


def positive_real(config: Mapping[str, Any], name: str, default: float) -> float:
    """Return a finite number above zero of a configuration."""
    value = float(config.get(name, default))
    if not 0.0 < value < math.inf:
        raise FormatError(f"{name} is {value}, no number above zero")
    return value


class Tensors(Protocol):
    """Where a network's parameters come from: a file, a folder, memory."""

    @property
    def path(self) -> str:
        """Return the name for messages."""

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that is there, slowest dimension first."""

    def matrix(self, name: str) -> _core.Weight:
        """Return a tensor of two dimensions in its stored form."""

    def array(self, name: str) -> Array:
        """Return a tensor of any shape as float32."""


class ArrayTensors:
    """Tensors in memory.

    Args:
        tensors: float32 arrays, and matrices in any stored form.
        path: What messages call them.
    """

    def __init__(self, tensors: Mapping[str, Array | _core.Weight], path: str = "memory") -> None:
        self._tensors = dict(tensors)
        self.path = path

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that is there."""
        tensor = self._tensors[name]
        return (tensor.rows, tensor.cols) if isinstance(tensor, _core.Weight) else tensor.shape

    def matrix(self, name: str) -> _core.Weight:
        """Return a tensor of two dimensions in its stored form."""
        tensor = self._tensors[name]
        if isinstance(tensor, _core.Weight):
            return tensor
        rows = np.ascontiguousarray(tensor, dtype=np.float32)
        return _core.Weight.from_blocks(name, "F32", rows.view(np.uint8), rows.shape[1])

    def array(self, name: str) -> Array:
        """Return a tensor as float32; UnsupportedError where it is packed."""
        tensor = self._tensors[name]
        if isinstance(tensor, _core.Weight):
            raise UnsupportedError(f"{self.path}: {name} is packed ({tensor.quant_type})")
        return np.ascontiguousarray(tensor, dtype=np.float32)


class Parameters:
    """A network's parameters with their shapes checked, each of which it must use.

    Args:
        tensors: Where they come from.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._used: set[str] = set()
        self._matrices: dict[str, _core.Weight] = {}

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return name in self._tensors.names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape; raise FormatError where it is missing."""
        if name not in self._tensors.names:
            raise FormatError(f"{self._tensors.path} lacks the tensor {name}")
        return self._tensors.shape(name)

    def matrix(self, name: str, rows: int, cols: int) -> _core.Weight:
        """Return the matrix ``name.weight``, [rows, cols], in its stored form."""
        full = f"{name}.weight"
        if full not in self._matrices:
            self._check(full, (rows, cols))
            self._matrices[full] = self._tensors.matrix(full)
        return self._matrices[full]

    def split(self, name: str, rows: list[int], cols: int) -> list[_core.Weight]:
        """Return the parts of the matrix ``name.weight``, [sum of rows, cols], one below the other."""
        whole = self.matrix(name, sum(rows), cols)
        ends = list(accumulate(rows))
        return [whole.slice(end - n, end) for end, n in zip(ends, rows, strict=True)]

    def array(self, name: str, *shape: int) -> Array:
        """Return a tensor of this shape as float32; FormatError where a value is not finite."""
        self._check(name, shape)
        values = self._tensors.array(name)
        if not np.isfinite(values).all():
            raise FormatError(f"{self._tensors.path}: {name} holds values that are not finite")
        return values

    def refuse_unused(
        self, prefixes: tuple[str, ...] = ("",), ignored: tuple[str, ...] = ()
    ) -> None:
        """Raise UnsupportedError for a tensor that nobody asked for: the result would be wrong.

        Args:
            prefixes: Of the tensors' names that belong to the network.
            ignored: Names that are no part of any result.
        """
        own = {n for n in self._tensors.names if n.startswith(prefixes)}
        unused = sorted(own - self._used - set(ignored))
        if unused:
            raise UnsupportedError(
                f"{self._tensors.path} has the tensor {unused[0]}, which this version does not use"
            )

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        found = self.shape(name)
        if found != shape:
            raise FormatError(
                f"{self._tensors.path}: {name} has shape {found}, but the configuration needs {shape}"
            )
        self._used.add(name)
