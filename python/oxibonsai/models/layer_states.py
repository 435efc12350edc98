"""A forward pass that also gives the hidden states before each of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import HadamardRotation, Value
from oxibonsai.lora.adapter import Adapter
from oxibonsai.models.adapting import AdaptedBuilder
from oxibonsai.models.weights import Weights

Vector = npt.NDArray[np.float32]


class NamedVectors:
    """Weights that remember under which name they handed out each vector.

    Args:
        weights: The model's.
    """

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._handed_out: list[tuple[Vector, str]] = []

    def vector(self, name: str, size: int) -> Vector:
        """Implement :meth:`Weights.vector`."""
        found = self._weights.vector(name, size)
        self._handed_out.append((found, name))
        return found

    def name_of(self, vector: Vector) -> str:
        """Return the name of a vector that was handed out; empty for any other."""
        return next((name for v, name in self._handed_out if v is vector), "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._weights, name)


class LayerStateBuilder(AdaptedBuilder):
    """Knows what the first norm of each layer reads, the layer's input, and what the final norm reads.

    Args:
        weights: What the model page is given in place of its weights.
        layers: How many the model has.
        fold, adapters: As of :class:`AdaptedBuilder`.
    """

    def __init__(
        self,
        weights: NamedVectors,
        layers: int,
        rotation: HadamardRotation | None = None,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        super().__init__(rotation, adapters)
        self._weights = weights
        first_norms = [f"blk.{i}.attn_norm.weight" for i in range(layers)]
        self._layer_of = {n: i for i, n in enumerate([*first_norms, "output_norm.weight"])}
        self._inputs: dict[int, Value] = {}

    def rms_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """Implement :meth:`Builder.rms_norm`."""
        self._note(x, weight)
        return super().rms_norm(x, weight, eps)

    def layer_norm(
        self, x: Value, weight: Vector, bias: Vector | None, eps: float, groups: int = 1
    ) -> Value:
        """Implement :meth:`Builder.layer_norm`."""
        self._note(x, weight)
        return super().layer_norm(x, weight, bias, eps, groups)

    def _note(self, x: Value, weight: Vector) -> None:
        layer = self._layer_of.get(self._weights.name_of(weight))
        if layer is not None:
            self._inputs.setdefault(
                layer, x
            )  # the final norm is asked for twice, first of all rows

    def layer_input(self, name: str) -> Value:
        """Return what a layer reads, ``layer.0`` and on; behind the last one, what the final norm reads.

        Raises:
            UnsupportedError: A layer of this architecture does not begin with a norm.
        """
        norms = {f"layer.{i}": norm for norm, i in self._layer_of.items()}
        if name not in norms:
            raise UnsupportedError(
                f"the model has {len(norms) - 1} layers, and no hidden states {name}"
            )
        found = self._inputs.get(self._layer_of[norms[name]])
        if found is None:
            raise UnsupportedError(
                f"hidden states by layer are known where a layer begins with a norm ({norms[name]}); "
                "this architecture is built otherwise"
            )
        return found
