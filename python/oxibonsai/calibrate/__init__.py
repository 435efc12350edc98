"""Quantization that looks at what a model reads: error feedback, and types by sensitivity."""

from __future__ import annotations

from oxibonsai.calibrate.feedback import encode_with_feedback

__all__ = ["encode_with_feedback"]
