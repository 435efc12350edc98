"""A forward pass that reads rows of pictures beside tokens."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.graph import HadamardRotation, Value
from oxibonsai.lora.adapter import Adapter
from oxibonsai.models.adapting import AdaptedBuilder

# The input that holds them.
IMAGES = "images"


class ImageBuilder(AdaptedBuilder):
    """Inserts rows of pictures where a model page says so.

    Args:
        width: Of such a row.
        fold: As of :class:`oxibonsai.graph.Builder`.
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
        """As :meth:`oxibonsai.graph.Builder.images`, with the rows of the input."""
        if self._rows is None:
            self._rows = self.input(IMAGES, self._width, own_rows=True)
        return self.insert_rows(h, self._rows, part * h.cols, added=added)
