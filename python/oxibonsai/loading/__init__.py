"""From what a user names to an opened checkpoint and adapters that fit it."""

from __future__ import annotations

from oxibonsai.loading.adapters import (
    LoraChoice,
    chosen_adapters,
    is_peft_folder,
    open_adapters,
    split_scaled,
)
from oxibonsai.loading.model import open_model
from oxibonsai.loading.quantized import QuantizedCache
from oxibonsai.loading.tower import discovered_mmproj, open_tower

__all__ = [
    "LoraChoice",
    "QuantizedCache",
    "chosen_adapters",
    "discovered_mmproj",
    "is_peft_folder",
    "open_adapters",
    "open_model",
    "open_tower",
    "split_scaled",
]
