"""Quantization that looks at what a model reads: error feedback, and types by sensitivity."""

from __future__ import annotations

from oxibonsai.calibrate.feedback import encode_with_feedback
from oxibonsai.calibrate.target_bits import TypeChoices, choose_types

__all__ = ["TypeChoices", "choose_types", "encode_with_feedback"]
