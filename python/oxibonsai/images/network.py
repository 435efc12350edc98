"""What a network is loaded from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oxibonsai.images.parameters import Tensors


@dataclass(frozen=True)
class Network:
    """A configuration and tensors.

    Attributes:
        config: As ``config.json`` of diffusers or transformers.
        tensors: By the names that these have.
    """

    config: Mapping[str, Any]
    tensors: Tensors
