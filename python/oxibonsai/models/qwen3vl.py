"""Qwen3-VL: Qwen3, dense or with experts, with M-RoPE and pictures that reach the first layers, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from oxibonsai.architectures import qwen3
from oxibonsai.graph import Builder, Value
from oxibonsai.models import families, qwen3moe
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


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


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of a dense model after the last layer: [tokens, hidden]."""
    shared = cast(qwen3.Config, c)  # the pass reads what both call alike
    h = qwen3.FAMILY.embed(g, shared, w)
    for i in range(c.num_hidden_layers):
        h = qwen3.layer(g, shared, w, i, h)
        if i < c.deepstack_layers:
            h = g.images(h, 1 + i, added=True)
    return h


QWEN3VL = Architecture(
    partial(read_config, partial(families.read_config, qwen3.FAMILY)), hidden_states
)
QWEN3VLMOE = Architecture(partial(read_config, qwen3moe.read_config), qwen3moe.hidden_states)
