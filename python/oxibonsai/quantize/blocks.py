"""Values to blocks, in slabs of rows that threads share out, with what is lost on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.quantize.weight_types import WeightType

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

# Values of rows [first, last) of a matrix, [last - first, cols].
Rows = Callable[[int, int], Floats]

_SLAB_WEIGHTS = 1 << 20  # 4 MiB of float32, a few more for each thread that works


@dataclass(frozen=True)
class Loss:
    """How far encoded values are from what they were; of floats, it is not measured.

    Attributes:
        error, total: Sums of the squares of the differences, and of the values.
    """

    error: float = 0.0
    total: float = 0.0

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.error + other.error, self.total + other.total)

    @property
    def relative(self) -> float:
        """Root of the mean square of the differences, over that of the values; 0 where all are 0."""
        return math.sqrt(self.error / self.total) if self.total > 0 else 0.0


# The bytes of a matrix, and what is lost.
Encoded = tuple[Bytes, Loss]


@dataclass(frozen=True)
class Matrix:
    """A matrix to encode.

    Attributes:
        where: Names it in errors.
        importance: Of its columns, for types that look at it.
        keeps_zeros: Whether weights that are zero must be read as zero.
    """

    where: str
    rows: int
    cols: int
    read: Rows
    importance: Floats | None = None
    keeps_zeros: bool = False

    def slabs(self) -> list[tuple[int, int]]:
        """Return first and last row of each part that is encoded by itself."""
        height = max(1, _SLAB_WEIGHTS // self.cols)
        return [(i, min(i + height, self.rows)) for i in range(0, self.rows, height)]


def encode_matrix(
    matrix: Matrix,
    kind: WeightType,
    pool: ThreadPoolExecutor,
    report: Callable[[int], None] | None = None,
) -> Encoded:
    """Return a matrix as the bytes of a type, the same for any number of threads.

    Args:
        matrix: Its columns are a multiple of the type's group.
        kind: The type.
        pool: Its threads share out the rows.
        report: Told the bytes of each slab.

    Raises:
        FormatError: A value is not finite, or too large for the type.
        RequestError: The type has no zero for a weight that must stay one.
    """
    row_bytes = kind.size(matrix.cols)
    blocks = np.empty((matrix.rows, row_bytes), np.uint8)

    def work(slab: tuple[int, int]) -> Loss:
        blocks[slab[0] : slab[1]], loss = _encode_rows(matrix, kind, *slab)
        return loss

    loss, slabs = Loss(), matrix.slabs()
    for (first, last), lost in zip(slabs, pool.map(work, slabs), strict=True):
        loss += lost
        if report is not None:
            report((last - first) * row_bytes)
    return blocks.reshape(-1), loss


def sample_loss(matrix: Matrix, kind: WeightType, rows: int) -> Loss:
    """Return the loss of encoding, measured on the first rows."""
    return _encode_rows(matrix, kind, 0, min(rows, matrix.rows))[1]


def finite_rows(matrix: Matrix, first: int, last: int) -> Floats:
    """Return rows of a matrix; FormatError where a value is not finite."""
    values = matrix.read(first, last)
    finite = np.isfinite(values)
    if not finite.all():
        row, col = np.argwhere(~finite)[0]
        raise FormatError(
            f"{matrix.where} holds {values[row, col]} in row {first + row}, column {col}: weights are "
            "finite"
        )
    return values


def _encode_rows(matrix: Matrix, kind: WeightType, first: int, last: int) -> Encoded:
    values = finite_rows(matrix, first, last)
    try:
        blocks: Bytes = _core.encode(values, kind.name, matrix.importance, 1)
    except FormatError as e:
        raise FormatError(f"{matrix.where}, from row {first}: {e}") from e
    if kind.group == 1:
        return blocks, Loss()  # floats lose nothing that counts
    return blocks, loss_of(matrix, values, blocks, kind)


def loss_of(matrix: Matrix, values: Floats, blocks: Bytes, kind: WeightType) -> Loss:
    """Return how far the blocks of a type are from the values of rows of a matrix.

    Raises:
        RequestError: The type has no zero for a weight that must stay one.
    """
    decoded = _core.decode(kind.name, blocks.reshape(-1)).reshape(values.shape)
    if matrix.keeps_zeros and decoded[values == 0].any():
        raise RequestError(
            f"{kind.name} has no zero for all pruned weights of {matrix.where}: write another type, for "
            "example --type Q8_0"
        )
    total = _sum_of_squares(values)
    return Loss(_sum_of_squares(np.subtract(values, decoded, out=decoded)), total)


def _sum_of_squares(values: Floats) -> float:
    # Row by row: a sum that does not depend on how rows are shared out.
    rows = np.einsum("ij,ij->i", values, values)
    return math.fsum(rows.tolist())
