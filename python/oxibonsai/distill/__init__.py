"""Teach models to say with binary or ternary weights what they say with all bits (extra ``finetune``)."""

from __future__ import annotations

from oxibonsai.distill.settings import DistillSettings

__all__ = ["DistillSettings"]
