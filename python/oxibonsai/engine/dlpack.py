"""Arrays that go to torch, numpy and others without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class DLPackArray:
    """A float32 array behind the DLPack protocol and nothing else.

    ``torch.from_dlpack(array)`` and ``numpy.from_dlpack(array)`` share its memory, which lives as long
    as any of them. Numpy does the work, so no other library is needed here.

    Attributes:
        shape: Of the array.
    """

    def __init__(self, values: npt.NDArray[np.float32]) -> None:
        self._values = values
        self.shape = values.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type and id: the CPU."""
        kind, number = self._values.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, **wanted: Any) -> Any:
        """Return a capsule for one consumer, with the keywords of the array API standard.

        Numpy before 2.1 takes none but ``stream``: what a consumer leaves at None is not passed on.
        """
        return self._values.__dlpack__(**{k: v for k, v in wanted.items() if v is not None})
