"""Architectures: one page each, chosen by the name that the checkpoint carries."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.lora import Adapter
from oxibonsai.models.base import Model, ModelPage, Weights
from oxibonsai.models.bert import bert
from oxibonsai.models.gemma3 import gemma3
from oxibonsai.models.llama import llama
from oxibonsai.models.observation import Observation
from oxibonsai.models.packed_cache import PackedCache
from oxibonsai.models.parity import Parity, check_parity
from oxibonsai.models.qwen3 import qwen3
from oxibonsai.progress import Progress

PAGES: dict[str, ModelPage] = {
    "llama": llama,
    "qwen2": llama,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "bert": bert,
}

__all__ = [
    "PAGES",
    "Model",
    "Observation",
    "PackedCache",
    "Parity",
    "Weights",
    "check_parity",
    "load_model",
]


def load_model(
    checkpoint: Checkpoint,
    device: _core.CpuDevice,
    progress: Progress | None = None,
    cache: PackedCache | None = None,
    adapters: Sequence[Adapter] = (),
) -> Model:
    """Describes a checkpoint's architecture, packs its weights for a device and compiles it."""
    config = checkpoint.config()
    page = PAGES[config.architecture]
    return Model(config, Weights(checkpoint), page, device, progress, cache, adapters)
