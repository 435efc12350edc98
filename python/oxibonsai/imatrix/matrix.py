"""The contents of an importance matrix, whatever file it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Entry:
    """Statistics of a weight's inputs.

    Attributes:
        squares: Sums of squared inputs, [matrices, cols]; one matrix, or one an expert.
        counts: Inputs that each matrix met, [matrices]; 0 where it met none. The older format counts
            runs of the model instead, and its sums are means times those.
    """

    squares: Values
    counts: Values

    def importance(self) -> Values:
        """Return mean squares, [matrices * cols]; 1 for all columns of a matrix that met no input."""
        counts = self.counts[:, None]
        means = np.divide(
            self.squares, counts, out=np.ones_like(self.squares), where=counts > np.float32(0)
        )
        return means.reshape(-1)


@dataclass(frozen=True, eq=False)
class Imatrix:
    """Importance of the columns of a model's weights.

    Attributes:
        entries: By the weight's name, such as ``blk.0.attn_q.weight``.
        datasets: Names of the texts that it was computed from.
        chunk_count: Pieces of text that the model ran over.
        chunk_size: Tokens of a piece; 0 where the file doesn't say.
    """

    entries: dict[str, Entry]
    datasets: tuple[str, ...] = ()
    chunk_count: int = 0
    chunk_size: int = 0

    def importance(self, tensor_name: str) -> Values | None:
        """Return the mean squares of a weight's inputs, float32 [cols]; None without an entry.

        A weight of several experts has [experts * cols].
        """
        entry = self.entries.get(tensor_name)
        return None if entry is None else entry.importance()
