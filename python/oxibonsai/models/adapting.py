"""Builders of forward passes: linear layers with adapters, rows of images beside tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oxibonsai import _core
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import Builder, HadamardRotation, Value, Vector
from oxibonsai.lora.adapter import Adapter, LowRank, in_use


class AdaptedBuilder(Builder):
    """Record two low-rank products after each linear layer that an adapter changes.

    An adapter's input is the layer's own, before any transform that the stored weights ask for.

    Args:
        rotation: As of :class:`Builder`.
        adapters: Added one after the other; those of scale 0 are left out, to the byte.
    """

    def __init__(
        self, rotation: HadamardRotation | None = None, adapters: Sequence[Adapter] = ()
    ) -> None:
        super().__init__(rotation)
        self._adapters = in_use(adapters)
        self._pairs: dict[str, list[LowRank]] = {}
        for adapter in self._adapters:
            for name, pair in adapter.pairs.items():
                scaled = replace(pair, scale=adapter.scale * pair.scale)
                self._pairs.setdefault(name, []).append(scaled)
        self._adapted: set[str] = set()

    def linear(
        self,
        x: Value,
        *weights: _core.Weight,
        bias: list[Vector | None] | None = None,
        add: Value | None = None,
    ) -> list[Value]:
        """Do what :meth:`Builder.linear` does, then add ``scale * B (A x)`` of each adapter in turn."""
        outputs = super().linear(x, *weights, bias=bias, add=add)
        pairs = [(i, p) for i, w in enumerate(weights) for p in self._pairs.get(w.name, ())]
        if not pairs:
            return outputs
        self._adapted.update(w.name for w in weights)
        low_rank = super().linear(x, *(pair.a for _, pair in pairs))
        for (i, pair), low in zip(pairs, low_rank, strict=True):
            scaled = low if pair.scale == 1.0 else self.scale(low, pair.scale)
            part = weights[i]
            b = pair.b
            if part.rows != b.rows:  # of a part of the tensor that the adapter changes
                b = b.slice(part.first_row, part.first_row + part.rows)
            (outputs[i],) = super().linear(scaled, b, add=outputs[i])
        return outputs

    def refuse_unused(self) -> None:
        """Raise UnsupportedError for a pair that changes no linear layer of the pass."""
        for adapter in self._adapters:
            for name in adapter.pairs:
                if name not in self._adapted:
                    raise UnsupportedError(
                        f"{adapter.name} changes {name}, which is no linear layer of the model"
                    )


# The input that holds them.
IMAGES = "images"


class ImageBuilder(AdaptedBuilder):
    """Inserts rows of images where a model page says so.

    Args:
        width: Of such a row.
        rotation: As of :class:`oxibonsai.graph.Builder`.
        adapters: As of :class:`AdaptedBuilder`.
    """

    def __init__(
        self, width: int, rotation: HadamardRotation | None = None, adapters: Sequence[Adapter] = ()
    ) -> None:
        super().__init__(rotation, adapters)
        self._width = width
        self._rows: Value | None = None

    @property
    def takes_images(self) -> bool:
        """Whether the page has inserted any."""
        return self._rows is not None

    def images(self, h: Value, part: int = 0, *, added: bool = False) -> Value:
        """Do what :meth:`oxibonsai.graph.Builder.images` does, with the rows of the input."""
        if self._rows is None:
            self._rows = self.input(IMAGES, self._width, own_rows=True)
        return self.insert_rows(h, self._rows, part * h.cols, added=added)
