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
        """As of :class:`Weights`."""
        found = self._weights.vector(name, size)
        self._handed_out.append((found, name))
        return found

    def name_of(self, vector: Vector) -> str:
        """Return the name of a vector that was handed out; empty for any other."""
        return next((name for v, name in self._handed_out if v is vector), "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._weights, name)


class LayerStateBuilder(AdaptedBuilder):
    """Makes an output of what the first norm of each layer reads: the layer's input.

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
        self._layer_of = {f"blk.{i}.attn_norm.weight": i for i in range(layers)}
        self._inputs: dict[int, Value] = {}

    def rms_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """As of :class:`Builder`."""
        self._note(x, weight)
        return super().rms_norm(x, weight, eps)

    def layer_norm(
        self, x: Value, weight: Vector, bias: Vector | None, eps: float, *, groups: int = 1
    ) -> Value:
        """As of :class:`Builder`."""
        self._note(x, weight)
        return super().layer_norm(x, weight, bias, eps, groups=groups)

    def _note(self, x: Value, weight: Vector) -> None:
        layer = self._layer_of.get(self._weights.name_of(weight))
        if layer is not None:
            self._inputs[layer] = x

    def output_layers(self) -> None:
        """Names the layers' inputs as outputs of the pass, ``layer.0`` and on.

        Raises:
            UnsupportedError: A layer of this architecture does not begin with a norm.
        """
        for name, layer in self._layer_of.items():
            if layer not in self._inputs:
                raise UnsupportedError(
                    f"hidden states by layer are known where a layer begins with a norm ({name}); "
                    "this architecture is built otherwise"
                )
            self.output(f"layer.{layer}", self.select_outputs(self._inputs[layer]))
