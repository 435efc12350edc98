"""Which weights of a matrix are pruned: those with the lowest scores, by rows, groups or the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

STRUCTURES = ("2:4", "4:8")
_SHARE_OF_STRUCTURES = 0.5


@dataclass(frozen=True)
class Sparsity:
    """How many weights of a matrix are pruned, and where they may lie.

    Attributes:
        share: Of the weights, above 0 and below 1.
        structure: ``2:4`` or ``4:8``: half of each 4 or 8 neighbours in a row; empty: anywhere.
    """

    share: float = _SHARE_OF_STRUCTURES
    structure: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise RequestError(f"sparsity is {self.share}; it must be above 0 and below 1")
        if self.structure and self.structure not in STRUCTURES:
            known = " and ".join(STRUCTURES)
            raise RequestError(f"mask_structure is {self.structure!r}; known are {known}")
        if self.structure and self.share != _SHARE_OF_STRUCTURES:
            raise RequestError(
                f"sparsity is {self.share}, and {self.structure} prunes half of the weights: leave one "
                "of the two out"
            )

    @property
    def group(self) -> int:
        """Return the neighbours of which half are pruned; 0: weights may lie anywhere."""
        return int(self.structure.partition(":")[2]) if self.structure else 0


def magnitude_mask(weights: Floats, sparsity: Sparsity) -> Mask:
    """Return the weights with the smallest absolute values: of the matrix, or of each group.

    So does ``torch.nn.utils.prune.l1_unstructured``. Of equal ones, the first are pruned.

    Args:
        weights: [rows, cols].
        sparsity: How many, and where.
    """
    scores = np.abs(weights)
    if sparsity.group:
        return _lowest_of_groups(scores, sparsity.group)
    count = round(sparsity.share * scores.size)
    return _lowest(scores.reshape(1, -1), count).reshape(scores.shape)


def wanda_mask(weights: Floats, mean_squares: Floats, sparsity: Sparsity) -> Mask:
    """Return the weights that change the outputs least: in each row, or in each group (Wanda).

    Args:
        weights: [rows, cols].
        mean_squares: Of the inputs that each column meets: [cols].
        sparsity: How many, and where.
    """
    scores = np.abs(weights) * np.sqrt(mean_squares)
    if sparsity.group:
        return _lowest_of_groups(scores, sparsity.group)
    return _lowest(scores, int(sparsity.share * scores.shape[1]))


def _lowest_of_groups(scores: Floats, group: int) -> Mask:
    return _lowest(scores.reshape(-1, group), group // 2).reshape(scores.shape)


def _lowest(scores: Floats, count: int) -> Mask:
    """Return the ``count`` lowest scores of each row; of equal ones, those that come first."""
    if count == 0:
        return np.zeros(scores.shape, np.bool_)
    threshold = np.partition(scores, count - 1, axis=1)[:, count - 1 : count]
    below, equal = scores < threshold, scores == threshold
    room = count - below.sum(axis=1, keepdims=True)
    mask: Mask = below | (equal & (np.cumsum(equal, axis=1) <= room))
    return mask
