"""Qwen3-VL: Qwen3, dense or with experts, with M-RoPE and pictures that reach the first layers, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from oxibonsai.models import qwen3, qwen3moe
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys


def read_config(read_text: Callable[[Keys], ModelConfig], keys: Keys) -> ModelConfig:
    """As of Qwen3, and how many layers a picture's rows are added behind.

    Args:
        read_text: Reads what the text part shares with Qwen3.
        keys: Of the file.
    """
    config = read_text(keys)
    layers = keys.count("n_deepstack_layers")
    if layers > config.num_hidden_layers:
        raise keys.fail(
            f"{keys.architecture}.n_deepstack_layers is {layers}, of {config.num_hidden_layers} layers"
        )
    rope = keys.multimodal_rope(config.head_dim, interleaved_sections=True)
    return replace(config, deepstack_layers=layers, rope=rope)


QWEN3VL = Architecture(partial(read_config, qwen3.read_config), qwen3.hidden_states)
QWEN3VLMOE = Architecture(partial(read_config, qwen3moe.read_config), qwen3moe.hidden_states)
