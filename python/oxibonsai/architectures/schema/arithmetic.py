"""Operations that compute values. They take float32, and their inverse rounds.

``Add`` gives back every bit where the sum is at least half as large as the number that was added,
``NegativeExp`` all but the last digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oxibonsai.architectures.schema.operations import Array, Operation, Shape


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
            raise ValueError("has values that are not below zero")
        return [np.log(-a.astype(np.float64)).astype(np.float32) for a in arrays]

    @property
    def inverse(self) -> NegativeExp:
        """Return the step that undoes this one."""
        return NegativeExp()


@dataclass(frozen=True)
class Scale(Computing):
    """Multiplies values by a number, in float32."""

    number: float

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the products."""
        return [a * np.float32(self.number) for a in arrays]

    @property
    def inverse(self) -> Scale:
        """Return the step that undoes this one."""
        return Scale(1.0 / self.number)


@dataclass(frozen=True)
class ScaleRows(Computing):
    """Multiplies runs of rows, of ``sizes``, by one of the ``numbers`` each, in float32."""

    numbers: tuple[float, ...]
    sizes: Shape

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the products."""
        self.shapes([a.shape for a in arrays])
        factors = np.repeat(np.array(self.numbers, np.float32), self.sizes)
        return [a * factors.reshape(-1, *[1] * (a.ndim - 1)) for a in arrays]

    @property
    def inverse(self) -> ScaleRows:
        """Return the step that undoes this one."""
        return ScaleRows(tuple(1.0 / number for number in self.numbers), self.sizes)

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes as they are."""
        for shape in shapes:
            if not shape or shape[0] != sum(self.sizes):
                raise ValueError(f"shape {shape} has not {sum(self.sizes)} rows")
        return list(shapes)
