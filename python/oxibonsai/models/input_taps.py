"""A forward pass that also gives what its linear layers read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import Executable, KvPages, Slots
from oxibonsai.graph import HadamardRotation, Value, Vector
from oxibonsai.lora.adapter import Adapter
from oxibonsai.models.adapting import AdaptedBuilder


@dataclass(frozen=True)
class InputTaps:
    """The pass, and which of its outputs each layer reads.

    Attributes:
        executable: The pass.
        outputs: By the tensors' names; weights that share an input share an output.
    """

    RESULT: ClassVar[str] = "result"

    executable: Executable
    outputs: dict[str, str]

    def run(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Return what the layers read of all rows of a batch, by the outputs' names."""
        found = self.executable.run(batch, pools, slots)
        return {name: found[name] for name in set(self.outputs.values())}


class InputTapsBuilder(AdaptedBuilder):
    """Makes the inputs of some linear layers outputs, one for all layers that share an input.

    Args:
        names: The tensors of the layers' weights.
        rotation, adapters: As of :class:`AdaptedBuilder`.
    """

    def __init__(
        self,
        names: Collection[str],
        rotation: HadamardRotation | None = None,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        super().__init__(rotation, adapters)
        self.outputs: dict[str, str] = {}
        self._names = frozenset(names)
        self._output_of: dict[Value, str] = {}

    def linear(
        self,
        x: Value,
        *weights: _core.Weight,
        bias: list[Vector | None] | None = None,
        add: Value | None = None,
    ) -> list[Value]:
        """Do what :meth:`Builder.linear` does; give the inputs before any rounding."""
        for weight in weights:
            if weight.name not in self._names:
                continue
            source = self._read_by(weight, x)
            if source not in self._output_of:
                self._output_of[source] = f"input.{len(self._output_of)}"
                self.output(self._output_of[source], source)
            self.outputs[weight.name] = self._output_of[source]
        return super().linear(x, *weights, bias=bias, add=add)
