"""Sequences, scheduling and the paged cache around one model."""

from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load
from oxibonsai.engine.sequence import Sequence

__all__ = ["Engine", "Sequence", "load"]
