"""Reversible steps from the parameters of a folder to the tensors of a GGUF file.

An operation takes a list of arrays and returns a list of arrays. It holds plain numbers, because a
family's table is written for one config; so an operation has all that its inverse needs.

Most operations *move* values: they work on any type of values, and their inverse gives back every bit.
Those that *compute* take float32, and their inverse rounds: ``Add`` gives back every bit where the sum
is at least half as large as the number that was added, ``NegativeExp`` all but the last digits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


class Operation(ABC):
    """One step.

    Attributes:
        moves: Whether values only change their places.
    """

    moves: ClassVar[bool] = True

    @abstractmethod
    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step: views where numpy can.

        Raises:
            ValueError: The arrays have other shapes than the step is for.
        """

    @property
    @abstractmethod
    def inverse(self) -> Operation:
        """Return the step that undoes this one."""

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes after the step, without making an array; errors as of :meth:`apply`."""
        return [a.shape for a in self.apply([np.broadcast_to(np.float32(0), s) for s in shapes])]

    def keeps_rows(self, dims: int) -> bool:
        """Return whether the values along the last of ``dims`` axes stay together and in order.

        Such a step can be applied to codes, scales and biases of packed rows, each by itself.
        """
        return True


def inverse_of(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the inverses, the last operation's first."""
    return tuple(operation.inverse for operation in reversed(operations))


def keep_rows(operations: Sequence[Operation], shape: Shape) -> bool:
    """Return whether operations over one array move whole rows of it.

    Raises:
        ValueError: They are for another shape.
    """
    shapes = [shape]
    for operation in operations:
        if not all(operation.keeps_rows(len(s)) for s in shapes):
            return False
        shapes = operation.shapes(shapes)
    return True


@dataclass(frozen=True)
class SplitAxis(Operation):
    """Makes two axes of one, the first of which has ``count`` places."""

    count: int
    axis: int = 0

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        i = self.axis
        return [a.reshape(*a.shape[:i], self.count, -1, *a.shape[i + 1 :]) for a in arrays]

    @property
    def inverse(self) -> MergeAxes:
        """Return the step that undoes this one."""
        return MergeAxes(self.count, self.axis)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether another axis than the last is split."""
        return self.axis < dims - 1


@dataclass(frozen=True)
class MergeAxes(Operation):
    """Makes one axis of two, the first of which has ``count`` places."""

    count: int
    axis: int = 0

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        i = self.axis
        for a in arrays:
            if a.ndim < i + 2 or a.shape[i] != self.count:
                raise ValueError(f"shape {a.shape} has not {self.count} at axis {i}")
        return [a.reshape(*a.shape[:i], -1, *a.shape[i + 2 :]) for a in arrays]

    @property
    def inverse(self) -> SplitAxis:
        """Return the step that undoes this one."""
        return SplitAxis(self.count, self.axis)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether the last axis is not one of the two."""
        return self.axis < dims - 2


@dataclass(frozen=True)
class PermuteGrid(Operation):
    """Reads an axis as a grid of ``sizes`` and puts the grid's axes in another ``order``.

    The rows of Llama's queries are ``PermuteGrid((heads, 2, width // 2), (0, 2, 1))``: a folder has the
    two halves of each head, a file has pairs of neighbours.
    """

    sizes: Shape
    order: Shape
    axis: int = 0

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        return [self._permuted(a) for a in arrays]

    def _permuted(self, a: Array) -> Array:
        i, n = self.axis, len(self.sizes)
        if a.ndim <= i or a.shape[i] != math.prod(self.sizes):
            raise ValueError(f"a grid of {self.sizes} has {math.prod(self.sizes)} at axis {i}")
        grid = a.reshape(*a.shape[:i], *self.sizes, *a.shape[i + 1 :])
        axes = [*range(i), *(i + j for j in self.order), *range(i + n, grid.ndim)]
        return grid.transpose(axes).reshape(a.shape)

    @property
    def inverse(self) -> PermuteGrid:
        """Return the step that undoes this one."""
        back = tuple(self.order.index(j) for j in range(len(self.order)))
        return PermuteGrid(tuple(self.sizes[j] for j in self.order), back, self.axis)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether another axis than the last is permuted."""
        return self.axis < dims - 1


@dataclass(frozen=True)
class Transpose(Operation):
    """Swaps the last two axes."""

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        return [a.swapaxes(-1, -2) for a in arrays]

    @property
    def inverse(self) -> Transpose:
        """Return the step itself."""
        return self

    def keeps_rows(self, dims: int) -> bool:
        """Return False: rows become columns."""
        return False


@dataclass(frozen=True)
class Split(Operation):
    """Takes one array apart into parts of ``sizes`` along an axis."""

    sizes: Shape
    axis: int = 0

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        (whole,) = arrays
        if whole.ndim <= self.axis or whole.shape[self.axis] != sum(self.sizes):
            raise ValueError(f"shape {whole.shape} has not {sum(self.sizes)} at axis {self.axis}")
        return np.split(whole, np.cumsum(self.sizes)[:-1], self.axis)

    @property
    def inverse(self) -> Concatenate:
        """Return the step that undoes this one."""
        return Concatenate(self.sizes, self.axis)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether another axis than the last is split."""
        return self.axis < dims - 1


@dataclass(frozen=True)
class Concatenate(Operation):
    """Puts arrays of ``sizes`` one after the other along an axis."""

    sizes: Shape
    axis: int = 0

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        self._check([a.shape for a in arrays])
        return [np.concatenate(arrays, self.axis)]

    @property
    def inverse(self) -> Split:
        """Return the step that undoes this one."""
        return Split(self.sizes, self.axis)

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the whole, for which numpy would take memory."""
        self._check(shapes)
        first = shapes[0]
        return [(*first[: self.axis], sum(self.sizes), *first[self.axis + 1 :])]

    def _check(self, shapes: Sequence[Shape]) -> None:
        i = self.axis
        sizes = tuple(s[i] if i < len(s) else 0 for s in shapes)
        if sizes != self.sizes or len({(*s[:i], *s[i + 1 :]) for s in shapes}) != 1:
            raise ValueError(f"shapes {list(shapes)} are not {self.sizes} at axis {i}")

    def keeps_rows(self, dims: int) -> bool:
        """Return whether rows are put below each other, and not side by side."""
        return self.axis < dims - 1


@dataclass(frozen=True)
class Stack(Operation):
    """Makes one array of ``count`` arrays of one shape, such as the matrices of all experts."""

    count: int

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        self.shapes([a.shape for a in arrays])
        return [np.stack(arrays)]

    @property
    def inverse(self) -> Unstack:
        """Return the step that undoes this one."""
        return Unstack(self.count)

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the stack, for which numpy would take memory."""
        if len(shapes) != self.count or len(set(shapes)) != 1:
            raise ValueError(f"shapes {list(shapes)} are not one shape {self.count} times")
        return [(self.count, *shapes[0])]


@dataclass(frozen=True)
class Unstack(Operation):
    """Takes a stack of ``count`` arrays apart."""

    count: int

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        (whole,) = arrays
        if whole.ndim < 1 or whole.shape[0] != self.count:
            raise ValueError(f"shape {whole.shape} is no stack of {self.count}")
        return list(whole)

    @property
    def inverse(self) -> Stack:
        """Return the step that undoes this one."""
        return Stack(self.count)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether there are rows in each part."""
        return dims > 1


class Computing(Operation):
    """Computes each value from the one in its place; takes float32."""

    moves = False

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes as they are."""
        return list(shapes)


@dataclass(frozen=True)
class Add(Computing):
    """Adds a number, such as 1 to the norms that a folder holds as their distance from it."""

    number: float

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the sums."""
        return [a + np.float32(self.number) for a in arrays]

    @property
    def inverse(self) -> Add:
        """Return the step that undoes this one."""
        return Add(-self.number)


@dataclass(frozen=True)
class NegativeExp(Computing):
    """Makes decays of their logarithms: -exp(x), in float64 and rounded once."""

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the decays."""
        return [-np.exp(a.astype(np.float64)).astype(np.float32) for a in arrays]

    @property
    def inverse(self) -> LogOfNegative:
        """Return the step that undoes this one."""
        return LogOfNegative()


@dataclass(frozen=True)
class LogOfNegative(Computing):
    """Makes logarithms of decays: log(-x), in float64 and rounded once."""

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the logarithms; ValueError for a value that is not below zero."""
        if not all((a < 0).all() for a in arrays):
            raise ValueError("there are values that are not below zero")
        return [np.log(-a.astype(np.float64)).astype(np.float32) for a in arrays]

    @property
    def inverse(self) -> NegativeExp:
        """Return the step that undoes this one."""
        return NegativeExp()
