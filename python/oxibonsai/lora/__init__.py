"""Low-rank adapters (LoRA, arXiv 2106.09685): small matrices that change what a model says."""

from __future__ import annotations

from oxibonsai.lora.adapter import Adapter, LowRank
from oxibonsai.lora.gguf_file import read_adapter

__all__ = ["Adapter", "LowRank", "read_adapter"]
