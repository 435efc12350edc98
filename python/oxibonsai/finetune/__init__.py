"""Train LoRA adapters on a model's packed weights (extra ``finetune``)."""

from __future__ import annotations

from oxibonsai.finetune.settings import FinetuneSettings

__all__ = ["FinetuneSettings"]
