"""Low-rank adapters (LoRA, arXiv 2106.09685): small matrices that change what a model says."""

from __future__ import annotations

from oxibonsai.lora.adapter import Adapter, LowRank
from oxibonsai.lora.opening import LoraChoice, is_peft_folder, open_adapters, split_scaled

__all__ = ["Adapter", "LoraChoice", "LowRank", "is_peft_folder", "open_adapters", "split_scaled"]
