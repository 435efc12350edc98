"""A request for an image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = npt.NDArray[np.float32]

STEPS = 4
SIDE = 512  # pixels, for networks of the usual size
STRENGTH = 0.4
MOST_REFERENCES = 8


@dataclass(frozen=True)
class ImageRequest:
    """One picture.

    Attributes:
        prompt: What it shows.
        seed: Of the noise that it starts from.
        width, height: In pixels.
        steps: Passes of the transformer.
        generator: Whose noise: ``mlx`` or ``torch``.
        start: A picture to start from instead of noise alone, in any size.
        strength: How much of ``start`` is kept, from 0 to 1, as mflux counts.
        references: Pictures that the prompt is about; the model edits or combines them.
    """

    prompt: str
    seed: int
    width: int = SIDE
    height: int = SIDE
    steps: int = STEPS
    generator: str = "mlx"
    start: Image | None = None
    strength: float = STRENGTH
    references: tuple[Image, ...] = field(default=())

    def __post_init__(self) -> None:
        if len(self.references) > MOST_REFERENCES:
            raise RequestError(
                f"{len(self.references)} references; up to {MOST_REFERENCES} are looked at"
            )
