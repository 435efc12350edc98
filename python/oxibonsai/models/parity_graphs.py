"""Graphs with random weights, to compare devices on without a model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.graph import Builder

Values = npt.NDArray[np.float32]
Describe = Callable[[Builder], None]


def graph_of(describe: Describe) -> _core.Graph:
    """Return the graph that is described."""
    builder = Builder()
    describe(builder)
    return builder.graph


def random_values(*shape: int) -> Values:
    """Return normal values, the same for each shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def random_matrix(
    rows: int,
    cols: int,
    quant_type: str,
    *,
    importance: bool = False,
    experts: int = 1,
    name: str = "",
) -> _core.Weight:
    """Return a matrix of a type.

    Args:
        rows: Of one expert.
        cols: Columns.
        quant_type: Its type.
        importance: Encode with columns that matter alike, for types that can't do without.
        experts: How many there are.
        name: Its name; empty: that of the type.
    """
    weights = np.ones(cols, np.float32) if importance else None
    blocks = _core.encode(random_values(experts * rows, cols), quant_type, weights)
    return _core.Weight.from_blocks(
        name or f"{quant_type}.weight", quant_type, blocks, cols, experts
    )
