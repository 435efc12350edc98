"""Qwen2-VL and Qwen2.5-VL: Qwen2 with M-RoPE."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from oxibonsai.architectures import qwen2
from oxibonsai.models import families
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys


def read_config(keys: Keys) -> ModelConfig:
    """As of Qwen2, with sections of pairs for time, height and width."""
    config = families.read_config(qwen2.FAMILY, keys)
    return replace(config, rope=keys.multimodal_rope(config.head_dim, interleaved_sections=False))


ARCHITECTURE = Architecture(read_config, partial(families.hidden_states, qwen2.FAMILY))
