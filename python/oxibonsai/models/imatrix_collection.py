"""A forward pass that also sums the squares of what its linear layers read."""

from __future__ import annotations

from collections.abc import Sequence
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
class ImatrixCollection:
    """The pass, and the sums that grow while it runs.

    Attributes:
        executable: Computes the same bytes as a pass that is not observed.
        sums: Of each weight, by the name of its tensor; weights that share an input share them.
    """

    OUTPUT: ClassVar[str] = "result"

    executable: Executable
    sums: dict[str, _core.InputSums]

    def run(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the pass's result: float32 [outputs, vocabulary or hidden]."""
        return self.executable.run(batch, pools, slots)[self.OUTPUT]


class ImatrixBuilder(AdaptedBuilder):
    """Records a sum of squares before each linear layer, one for all that share an input.

    What adapters add is computed too; their own matrices are not observed.
    """

    def __init__(
        self, rotation: HadamardRotation | None = None, adapters: Sequence[Adapter] = ()
    ) -> None:
        super().__init__(rotation, adapters)
        self.sums: dict[str, _core.InputSums] = {}
        self._sums_of: dict[Value, _core.InputSums] = {}

    def linear(
        self,
        x: Value,
        *weights: _core.Weight,
        bias: list[Vector | None] | None = None,
        add: Value | None = None,
    ) -> list[Value]:
        """Do what :meth:`Builder.linear` does; sum the inputs before any rounding."""
        for weight in weights:
            source = self._read_by(weight, x)
            if source not in self._sums_of:
                self._sums_of[source] = _core.InputSums(source.cols)
                self.graph.observe(source, self._sums_of[source])
            self.sums[weight.name] = self._sums_of[source]
        return super().linear(x, *weights, bias=bias, add=add)
