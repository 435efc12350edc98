"""The largest logits of a row, where the others have stayed on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TopLogits:
    """The k largest logits of a vocabulary.

    Attributes:
        ids: int32 [k], the largest first, of equal ones the lower id.
        values: float32 [k], theirs.
        vocabulary: How many logits there are.
        fetch: Brings all of them, float32 [vocabulary]; until the device's next step.
    """

    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    vocabulary: int
    fetch: Callable[[], npt.NDArray[np.float32]]

    def hold(self, k: int, temperature: float = 1.0) -> bool:
        """Whether the k largest of all logits divided by the temperature are among these.

        Division can make different logits equal, of which the lower id then comes first: it may be one
        that is not here, unless the last one here is less than the k-th.
        """
        if len(self.ids) == self.vocabulary:
            return True
        if len(self.ids) <= k:
            return False
        with np.errstate(over="ignore"):
            largest, least_kept, last = self.values[[0, k - 1, -1]] / np.float32(temperature)
        return bool(np.isfinite(largest) and least_kept > last)
