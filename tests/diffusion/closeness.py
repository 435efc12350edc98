"""How near two results are: the gate of images that every network has to pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def distance(got: Floats, want: Floats) -> tuple[float, float]:
    """1 - cosine, and the difference's norm as a share of that of ``want``."""
    assert got.shape == want.shape
    a, b = (x.astype(np.float64).ravel() for x in (got, want))
    cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    return 1.0 - float(cosine), float(np.linalg.norm(a - b) / np.linalg.norm(b))


def near(got: Floats, want: Floats) -> bool:
    """Whether the gate lets it pass."""
    cosine, relative = distance(got, want)
    return cosine <= 1e-6 and relative <= 1e-4
