"""Numbers of a file as a configuration states them: a float32 as the decimal that was meant."""

from __future__ import annotations

from typing import Any

import numpy as np


def shortened(value: Any) -> Any:
    """Return the value with all numbers as they were meant."""
    if isinstance(value, dict):
        return {k: shortened(v) for k, v in value.items()}
    return short(value) if isinstance(value, float) else value


def short(value: float) -> float:
    """Return the decimal that was meant by a float32 of the file."""
    return float(str(np.float32(value)))


def rounded(value: float, digits: int = 6) -> float:
    """Return a computed value to so many significant digits."""
    return float(f"{value:.{digits}g}")
