"""Qwen3, and so every dense Bonsai: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {**decoder.LAYER, **decoder.HEAD_NORMS}


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("use_sliding_window", False)
    return {
        **decoder.dimension_keys(folder, "qwen3"),
        **rope_keys("qwen3", *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }


QWEN3 = Recipe(
    "qwen3",
    metadata,
    decoder.namer("Qwen3", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values()),
)
