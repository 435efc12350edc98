"""Hidden states of a text's tokens to one vector, in an arithmetic that no chunk or machine changes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

POOLINGS = ("last", "mean", "max", "cls")

Floats = npt.NDArray[np.float32]


class Pooler:
    """Folds the rows of one text in the order of their positions.

    Args:
        pooling: ``"last"`` or ``"cls"`` (the first) takes one token's state; ``"mean"`` sums in
            float64, one row after the other; ``"max"`` keeps the larger value of each dimension.
        length: Tokens of the text.

    Attributes:
        rows: The positions whose states are wanted.
    """

    def __init__(self, pooling: str, length: int) -> None:
        if pooling not in POOLINGS:
            raise RequestError(f"pooling is {pooling!r}; it is one of {', '.join(POOLINGS)}")
        one = {"last": range(length - 1, length), "cls": range(1)}
        self.rows = one.get(pooling, range(length))
        self._pooling = pooling
        self._count = 0
        self._vector = np.empty(0)

    def add(self, row: Floats) -> None:
        """Add the state at the next position of ``rows``."""
        wide = row.astype(np.float64)
        self._count += 1
        if self._count == 1:
            self._vector = wide
        elif self._pooling == "max":
            # Not np.maximum: which zero it takes of +0 and -0 differs between machines.
            self._vector = np.where(wide > self._vector, wide, self._vector)
        else:
            self._vector += wide

    def result(self) -> Floats:
        """Return float32 [hidden], once all rows are in."""
        vector = self._vector / self._count if self._pooling == "mean" else self._vector
        return vector.astype(np.float32)


class TokenStates:
    """Keeps the rows of one text as they are.

    Args:
        length: Tokens of the text.

    Attributes:
        rows: The positions whose states are wanted: all.
    """

    def __init__(self, length: int) -> None:
        self.rows = range(length)
        self._states: list[Floats] = []

    def add(self, row: Floats) -> None:
        """Add the state at the next position."""
        self._states.append(row)

    def result(self) -> Floats:
        """Return float32 [length, hidden], once all rows are in."""
        return np.stack(self._states)


def unit(vector: Floats) -> Floats:
    """Return the vector divided by its Euclidean norm; zero stays zero.

    Squares are exact in float64 and their sum is rounded once, so that the norm does not depend on
    an order of additions.
    """
    wide = vector.astype(np.float64)
    norm = math.sqrt(math.fsum(wide * wide))
    return vector if norm == 0.0 else (wide / norm).astype(np.float32)
