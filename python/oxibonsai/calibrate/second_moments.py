"""Collect the second moments of what linear layers read, and what error feedback needs of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.windows import read_windows
from oxibonsai.errors import FormatError
from oxibonsai.models import Model

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

# What is added to the diagonal, in units of its mean: the value of the GPTQ paper (section 3).
DAMPING = 0.01


@dataclass(eq=False)
class SecondMoments:
    """The sum of x x^T over the rows x that a layer reads.

    Attributes:
        sums: [cols, cols].
        rows: How many.
    """

    sums: Doubles
    rows: int = 0

    def add(self, x: Floats) -> None:
        """Add rows [rows, cols]."""
        self.sums += x.T @ x
        self.rows += len(x)

    def means(self) -> Doubles:
        """Return the second moments of a row."""
        return self.sums / max(1, self.rows)

    def feedback_factor(self, damping: float = DAMPING) -> Floats:
        """Return the upper triangle U with U^T U = H^-1, H the damped second moments.

        Args:
            damping: In units of the mean of the diagonal.
        """
        moments = self.means()
        diagonal = np.einsum("ii->i", moments)
        mean = float(diagonal.mean())
        # A layer that has read nothing but zeros: all its columns count alike.
        diagonal += damping * mean if mean > 0.0 else 1.0
        # With the order of the columns reversed, H = L L^T; then U is the inverse of L, turned back.
        lower = np.linalg.cholesky(moments[::-1, ::-1])
        factor = np.triu(np.linalg.inv(lower)[::-1, ::-1])
        return np.ascontiguousarray(factor, np.float32)


def diagonal_factor(squares: Floats, damping: float = DAMPING) -> Floats:
    """Return the factor of inputs whose columns don't go together.

    Args:
        squares: The means of their squares.
        damping: In units of the mean of the squares.
    """
    mean = float(squares.mean(dtype=np.float64))
    damped = squares.astype(np.float64) + (damping * mean if mean > 0.0 else 1.0)
    return np.diag(1.0 / np.sqrt(damped)).astype(np.float32)


def collect_moments(
    model: Model, kv_type: str | None, windows: Sequence[Sequence[int]], names: Collection[str]
) -> dict[str, SecondMoments]:
    """Run a model over windows of a text, each from an empty context.

    Args:
        model: A decoder.
        kv_type: Of cached keys and values; None: it keeps none.
        windows: Token ids, all windows of one length.
        names: The tensors whose inputs are wanted.

    Returns:
        The moments by the tensors' names, shared by those that share an input. Tensors that no linear
        layer multiplies with have none.

    Raises:
        FormatError: The model computes something that is no number.
    """
    taps = model.input_taps(names)
    found: dict[str, SecondMoments] = {}
    for steps in read_windows(model, kv_type, windows, taps.run, outputs=False):
        for step in steps:
            for output, x in step.items():
                if output not in found:
                    found[output] = SecondMoments(np.zeros((x.shape[1], x.shape[1])))
                found[output].add(x)
    by_name = {name: found[output] for name, output in taps.outputs.items()}
    for name, moments in by_name.items():
        if not np.isfinite(moments.sums).all():
            raise FormatError(
                f"the inputs of {name} are no finite numbers: the model's file is damaged"
            )
    return by_name
