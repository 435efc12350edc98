"""Architectures: one page each, chosen by the name that the checkpoint carries."""

from __future__ import annotations

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.models.base import Model, ModelPage, Weights
from oxibonsai.models.gemma3 import gemma3
from oxibonsai.models.llama import llama
from oxibonsai.models.qwen3 import qwen3

PAGES: dict[str, ModelPage] = {"llama": llama, "qwen2": llama, "qwen3": qwen3, "gemma3": gemma3}

__all__ = ["PAGES", "Model", "Weights", "load_model"]


def load_model(checkpoint: Checkpoint, pool: _core.ThreadPool) -> Model:
    """Builds the program of a checkpoint's architecture and packs its weights."""
    config = checkpoint.config()
    return Model(config, Weights(checkpoint), PAGES[config.architecture], pool)
