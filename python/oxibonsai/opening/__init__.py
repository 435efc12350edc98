"""From what a user names to an opened checkpoint and adapters that fit it."""

from __future__ import annotations

from oxibonsai.opening.adapters import (
    LoraChoice,
    chosen_adapters,
    is_peft_folder,
    open_adapters,
    split_scaled,
)
from oxibonsai.opening.model import open_model
from oxibonsai.opening.quantized import QuantizedCache
from oxibonsai.opening.tower import open_tower, towers_beside

__all__ = [
    "LoraChoice",
    "QuantizedCache",
    "chosen_adapters",
    "is_peft_folder",
    "open_adapters",
    "open_model",
    "open_tower",
    "split_scaled",
    "towers_beside",
]
