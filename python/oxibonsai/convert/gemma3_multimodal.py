"""Gemma 3 that sees images, too: its text part, which is a Gemma 3 for texts under other names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.gemma3 import GEMMA3
from oxibonsai.convert.multimodal import with_vision

# What Gemma3TextConfig of transformers has where a configuration doesn't say: the hub's say little.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "query_pre_attn_scalar": 256,
    "rope_theta": 1e6,
    "sliding_window": 4096,
}


def _text_config(folder: ModelFolder) -> dict[str, Any]:
    return {**_DEFAULTS, **folder.text_config()}


GEMMA3_MULTIMODAL = replace(with_vision(GEMMA3), config=_text_config)
