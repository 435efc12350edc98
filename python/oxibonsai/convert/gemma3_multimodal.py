"""Gemma 3 that sees images, too: its text part, which is a Gemma 3 for texts under other names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.gemma3 import GEMMA3

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
# Versions of transformers call the same parameters differently.
_TEXT = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_IMAGES = ("vision_tower.", "multi_modal_projector.")


def _text_config(folder: ModelFolder) -> dict[str, Any]:
    return {**_DEFAULTS, **folder.text_config()}


def _tensor_name(parameter: str) -> str | None:
    if parameter.removeprefix("model.").startswith(_IMAGES):
        return None
    for prefix, plain in _TEXT.items():
        if parameter.startswith(prefix):
            return GEMMA3.tensor_name(plain + parameter.removeprefix(prefix))
    return GEMMA3.tensor_name(parameter)


GEMMA3_MULTIMODAL = replace(
    GEMMA3,
    config=_text_config,
    tensor_name=_tensor_name,
)
