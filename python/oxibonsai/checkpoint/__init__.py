"""Model files, opened and checked."""

from __future__ import annotations

from oxibonsai.checkpoint.checkpoint import Checkpoint

__all__ = ["Checkpoint"]
