"""The tiny model with normally distributed float weights: what a model is before it is quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tiny_model


def write(path: Path, *, seed: int = 1, **options: Any) -> None:
    """Writes it; options as :func:`tiny_model.write`."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tiny_model.shapes().items():
        if len(shape) > 1:
            values = random.normal(0, 0.1, shape).astype(np.float32)
            tensors[name] = (shape, 0, values.tobytes())
    tiny_model.write(path, tensors=tensors | options.pop("tensors", {}), **options)
