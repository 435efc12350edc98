"""Reversible steps from the parameters of a folder to the tensors of a GGUF file.

An operation takes a list of arrays and returns a list of arrays. It holds plain numbers, because a
family's table is written for one config; so an operation has all that its inverse needs.

The operations here *move* values: they work on any type of values, and their inverse gives back every
bit. Those that compute are in :mod:`oxibonsai.architectures.schema.arithmetic`. A :class:`OneWay` step
has no inverse but states what a folder gets instead.
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
        one_way: Whether the inverse gives other values back than there were.
        each: Whether an array of the result is made of the one in its place alone.
    """

    moves: ClassVar[bool] = True
    one_way: ClassVar[bool] = False
    each: ClassVar[bool] = True

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

    def of_groups(self, dims: int, size: int) -> Operation | None:
        """Return the step over arrays with one value for each ``size`` neighbours of the last axis.

        Such are the scales of packed rows. None: the step takes neighbours apart.
        """
        return self if self.keeps_rows(dims) else None


def inverse_of(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the inverses, the last operation's first."""
    return tuple(operation.inverse for operation in reversed(operations))


def keep_rows(operations: Sequence[Operation], shapes: Sequence[Shape]) -> bool:
    """Return whether operations over arrays of these shapes move whole rows of them.

    Raises:
        ValueError: They are for other shapes.
    """
    for operation in operations:
        if not all(operation.keeps_rows(len(s)) for s in shapes):
            return False
        shapes = operation.shapes(shapes)
    return True


def over_groups(
    operations: Sequence[Operation], shapes: Sequence[Shape], size: int
) -> tuple[Operation, ...] | None:
    """Return operations over arrays, for the scales of each ``size`` neighbours in their rows.

    Returns:
        The steps; None where one of them takes such neighbours apart.

    Raises:
        ValueError: They are for other shapes.
    """
    found = []
    for operation in operations:
        steps = [operation.of_groups(len(s), size) for s in shapes]
        if (step := steps[0]) is None or None in steps:
            return None
        found.append(step)
        shapes = operation.shapes(shapes)
    return tuple(found)


@dataclass(frozen=True)
class Expect(Operation):
    """Takes arrays of one shape as they are, where another spelling has the same names.

    Only shapes are checked: packed rows are fewer columns wide.
    """

    shape: Shape

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays."""
        return list(arrays)

    @property
    def inverse(self) -> Expect:
        """Return the step itself."""
        return self

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes as they are."""
        if any(shape != self.shape for shape in shapes):
            raise ValueError(f"shapes {list(shapes)} are not {self.shape}")
        return list(shapes)


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

    def of_groups(self, dims: int, size: int) -> Operation | None:
        """Return the step over groups; of the last axis, whole groups must move."""
        *grid, last = self.sizes
        if self.keeps_rows(dims):
            return self
        if self.order[-1] != len(grid) or last % size != 0:
            return None
        return PermuteGrid((*grid, last // size), self.order, self.axis)


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
    """Takes the first array apart into parts of ``sizes`` along an axis; ``others`` follow."""

    sizes: Shape
    axis: int = 0
    others: int = 0
    each = False

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        whole, *others = arrays
        if whole.ndim <= self.axis or whole.shape[self.axis] != sum(self.sizes):
            raise ValueError(f"shape {whole.shape} has not {sum(self.sizes)} at axis {self.axis}")
        if len(others) != self.others:
            raise ValueError(f"{len(others)} arrays follow, not {self.others}")
        return [*np.split(whole, np.cumsum(self.sizes)[:-1], self.axis), *others]

    @property
    def inverse(self) -> Concatenate:
        """Return the step that undoes this one."""
        return Concatenate(self.sizes, self.axis, self.others)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether another axis than the last is split."""
        return self.axis < dims - 1


@dataclass(frozen=True)
class Concatenate(Operation):
    """Puts the first arrays, of ``sizes``, one after the other along an axis; ``others`` follow."""

    sizes: Shape
    axis: int = 0
    others: int = 0
    each = False

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        self._check([a.shape for a in arrays])
        count = len(self.sizes)
        return [np.concatenate(arrays[:count], self.axis), *arrays[count:]]

    @property
    def inverse(self) -> Split:
        """Return the step that undoes this one."""
        return Split(self.sizes, self.axis, self.others)

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the whole, for which numpy would take memory."""
        self._check(shapes)
        first, i = shapes[0], self.axis
        whole = (*first[:i], sum(self.sizes), *first[i + 1 :])
        return [whole, *shapes[len(self.sizes) :]]

    def _check(self, shapes: Sequence[Shape]) -> None:
        i, joined = self.axis, shapes[: len(self.sizes)]
        sizes = tuple(s[i] if i < len(s) else 0 for s in joined)
        fit = sizes == self.sizes and len(shapes) == len(joined) + self.others
        if not fit or len({(*s[:i], *s[i + 1 :]) for s in joined}) != 1:
            raise ValueError(f"shapes {list(shapes)} are not {self.sizes} at axis {i}")

    def keeps_rows(self, dims: int) -> bool:
        """Return whether rows are put below each other, and not side by side."""
        return self.axis < dims - 1


@dataclass(frozen=True)
class OnPart(Operation):
    """Moves the values of one of several arrays, and leaves the others as they are."""

    place: int
    operation: Operation
    each = False

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        found = list(arrays)
        (found[self.place],) = self.operation.apply([arrays[self.place]])
        return found

    @property
    def inverse(self) -> OnPart:
        """Return the step that undoes this one."""
        return OnPart(self.place, self.operation.inverse)

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes after the step."""
        found = list(shapes)
        (found[self.place],) = self.operation.shapes([shapes[self.place]])
        return found

    def keeps_rows(self, dims: int) -> bool:
        """Return whether the rows of that array stay together."""
        return self.operation.keeps_rows(dims)

    def of_groups(self, dims: int, size: int) -> Operation | None:
        """Return the step over groups."""
        step = self.operation.of_groups(dims, size)
        return None if step is None else OnPart(self.place, step)


@dataclass(frozen=True)
class Stack(Operation):
    """Makes one array of ``count`` arrays of one shape, such as the matrices of all experts."""

    count: int
    each = False

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
    each = False

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


@dataclass(frozen=True)
class Duplicate(Operation):
    """Gives an array twice, where a file wants it under two names."""

    each = False

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        (whole,) = arrays
        return [whole, whole]

    @property
    def inverse(self) -> TakeFirst:
        """Return the step that undoes this one."""
        return TakeFirst()


@dataclass(frozen=True)
class TakeFirst(Operation):
    """Takes the first of two arrays that are the same."""

    each = False

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        first, _ = arrays
        return [first]

    @property
    def inverse(self) -> Duplicate:
        """Return the step that undoes this one."""
        return Duplicate()


@dataclass(frozen=True)
class TakeRows(Operation):
    """Takes some rows of an array, and keeps the array before them or not."""

    ids: tuple[int, ...]
    keeps_whole: bool = False
    one_way = True
    each = False

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        (whole,) = arrays
        if whole.ndim < 1 or whole.shape[0] <= max(self.ids):
            raise ValueError(f"shape {whole.shape} has no row {max(self.ids)}")
        rows = whole[list(self.ids)]
        return [whole, rows] if self.keeps_whole else [rows]

    @property
    def inverse(self) -> OneWay:
        """Return no step: the other rows are lost."""
        return OneWay(())

    def keeps_rows(self, dims: int) -> bool:
        """Return whether there is another axis than that of the rows."""
        return dims > 1


@dataclass(frozen=True)
class SkipRows(Operation):
    """Leaves out the first rows, which nothing reads."""

    count: int
    one_way: ClassVar[bool] = True

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        if any(a.ndim < 1 or a.shape[0] <= self.count for a in arrays):
            raise ValueError(f"there are no more than {self.count} rows")
        return [a[self.count :] for a in arrays]

    @property
    def inverse(self) -> ZeroRows:
        """Return the step that undoes this one, but for the values of the rows."""
        return ZeroRows(self.count)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether there is another axis than that of the rows."""
        return dims > 1


@dataclass(frozen=True)
class ZeroRows(Operation):
    """Puts rows of zeros before the others."""

    count: int

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the step."""
        return [np.pad(a, [(self.count, 0)] + [(0, 0)] * (a.ndim - 1)) for a in arrays]

    @property
    def inverse(self) -> SkipRows:
        """Return the step that undoes this one."""
        return SkipRows(self.count)

    def keeps_rows(self, dims: int) -> bool:
        """Return whether there is another axis than that of the rows."""
        return dims > 1


@dataclass(frozen=True)
class OneWay(Operation):
    """Steps of which a file does not tell, such as factors of ``config.json`` times the weights.

    A folder that is made of a file gets what ``undo`` makes of the tensors, and a config (with factors
    of 1, say) by which it becomes the same file again.
    """

    steps: tuple[Operation, ...]
    undo: tuple[Operation, ...] = ()
    moves = False
    one_way = True
    each = False  # which its steps may not be

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays after the steps."""
        found = list(arrays)
        for step in self.steps:
            found = step.apply(found)
        return found

    @property
    def inverse(self) -> OneWay:
        """Return the steps of the other direction."""
        return OneWay(self.undo, self.steps)

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes after the steps."""
        found = list(shapes)
        for step in self.steps:
            found = step.shapes(found)
        return found

    def keeps_rows(self, dims: int) -> bool:
        """Return False: what computes is not for packed rows."""
        return False
