"""Weights in the basis of a Hadamard transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class HadamardRotation:
    """Weights stored in the basis of a block Walsh-Hadamard transform H (Bonsai 2).

    With s the signs of a row's width: a folded matrix is multiplied with H(s * x) in place of x, and
    a row z of a folded table stands for s * H(z).

    Attributes:
        block: Values of a row that are transformed together, a power of two.
        matrices: Names of the folded matrices' tensors.
        tables: Those of the folded tables.
        signs: -1 and 1 for each width; none at all: every sign is 1.
        grouped_values: The output matrix of a gated delta rule was folded while value heads that share
            a key head were neighbours, whatever the order of the heads in the file.
        tied_output: The folded token embedding is the output matrix, too.
    """

    block: int
    matrices: frozenset[str]
    tables: frozenset[str]
    signs: Mapping[int, npt.NDArray[np.float32]]
    tied_output: bool = False
    grouped_values: bool = False

    def has_matrix(self, name: str) -> bool:
        """Return whether a linear layer on this tensor wants its input transformed."""
        return name in self.matrices or (self.tied_output and name in self.tables)

    def has_table(self, name: str) -> bool:
        """Return whether this tensor's rows want to be transformed back."""
        return name in self.tables

    def signs_of(self, width: int) -> npt.NDArray[np.float32] | None:
        """Return the signs of rows of a width; None where all are 1."""
        return self.signs[width] if self.signs else None
