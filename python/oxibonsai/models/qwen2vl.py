"""Qwen2-VL and Qwen2.5-VL: Qwen2 with M-RoPE."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.models import llama
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys


def read_config(keys: Keys) -> ModelConfig:
    """As of Qwen2, with sections of pairs for time, height and width."""
    config = llama.read_config(keys, interleaved=False)
    return replace(config, rope=keys.multimodal_rope(config.head_dim, interleaved_sections=False))


ARCHITECTURE = Architecture(read_config, llama.hidden_states)
