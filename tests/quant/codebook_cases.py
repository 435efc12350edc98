"""The matrices on which encoders of codebook types are measured, here and by llama.cpp.

All numbers are made of integers, so they are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

Floats = npt.NDArray[np.float32]

TYPES = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
SHAPE = (32, 512)
GEMMA_TENSORS = (
    "blk.3.attn_q.weight",
    "blk.9.attn_output.weight",
    "blk.12.ffn_gate.weight",
    "blk.7.ffn_down.weight",
)


def bell(random: np.random.RandomState) -> Floats:
    """Nearly normal with a deviation of 1/32."""
    total = random.randint(0, 1 << 20, (12, *SHAPE)).sum(axis=0) - (6 << 20)
    return (total / (1 << 25)).astype(np.float32)


def random_matrices() -> dict[str, Floats]:
    random = np.random.RandomState(11)
    plain = bell(random)
    sizes = np.exp2(random.randint(-3, 3, SHAPE)).astype(np.float32)
    columns = np.where(random.randint(0, 64, SHAPE[1]) == 0, 16, 1).astype(np.float32)
    sparse = (random.randint(0, 16, SHAPE) == 0).astype(np.float32)
    return {
        "bell": plain,
        "heavy tails": bell(random) * sizes,
        "large columns": bell(random) * columns,
        "mostly zeros": bell(random) * sparse,
    }


def gemma_matrices(path: Path) -> dict[str, Floats]:
    """The first weights of matrices of Gemma 3 270M, in rows of blocks."""
    file = _core.GgufFile(str(path))
    kinds = {info.name: info.quant_type for info in file.tensors}
    matrices = {}
    for name in GEMMA_TENSORS:
        values = _core.decode(kinds[name], file.tensor_bytes(name))
        matrices[f"gemma {name}"] = values[: 1 << 15].reshape(-1, SHAPE[1])
    return matrices


def importance_of_columns() -> Floats:
    """Spread over two orders of magnitude, as mean squares of activations are."""
    random = np.random.RandomState(12)
    return np.exp2(random.randint(0, 8, SHAPE[1])).astype(np.float32)


def relative_error(
    values: Floats, quant_type: str, blocks: npt.NDArray[Any], importance: Floats | None
) -> float:
    """Sum of squared errors over the sum of squares, both weighted by the importance."""
    decoded = _core.decode(quant_type, blocks.ravel()).reshape(values.shape)
    weights = 1.0 if importance is None else importance.astype(np.float64)
    exact = values.astype(np.float64)
    return float((weights * (decoded - exact) ** 2).sum() / (weights * exact**2).sum())
