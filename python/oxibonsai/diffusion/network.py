"""The protocol of the tensors that a network is loaded from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.diffusion.parameters import Tensors


class StoredTensors(Tensors, Protocol):
    """Tensors of a file, which can be written to another file as they are."""

    def quant_type(self, name: str) -> str:
        """Return the type that a tensor is stored in."""

    def stored(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the stored bytes of a tensor of any shape."""

    def release(self) -> None:
        """Take the weights out of memory, once they are packed for a device."""


@dataclass(frozen=True)
class Network:
    """A configuration and tensors.

    Attributes:
        config: As ``config.json`` of diffusers or transformers.
        tensors: By the names that these have.
    """

    config: Mapping[str, Any]
    tensors: StoredTensors
